"""What a stage has at hand while it records one side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from twinalign.backends import load_distributed
from twinalign.case import Case
from twinalign.errors import InputError
from twinalign.halves import rounded
from twinalign.recording import Recording, hash_arrays
from twinalign.stages.calling import named_values
from twinalign.stages.checkpoints import CheckpointPlace
from twinalign.stages.moving import moved_arrays
from twinalign.stages.naming import CanonicalNames
from twinalign.stages.watching import TrainingPlan


def step_inputs(case: Case, step: int = 0) -> dict[str, np.ndarray]:
    """The case's inputs for a step, which both sides make for themselves from the same seed.

    Raises:
        InputError: they are no dictionary.
        ValueError: there are none.
    """
    given = case.inputs(np.random.default_rng([case.seed, step]))
    if not isinstance(given, Mapping):
        raise InputError(
            f"case {case.name}: inputs(rng) returned {type(given).__name__}; return a dictionary, name -> array"
        )
    arrays = {name: np.asarray(value) for name, value in given.items()}
    if not arrays:
        raise ValueError(f"{case.name}: inputs() returned nothing")
    return arrays


def rank_inputs(case: Case, inputs: Mapping[str, np.ndarray], rank: int, ranks: int) -> dict[str, np.ndarray]:
    """What one of several ranks is given of a step's inputs, as the case has it.

    Raises:
        InputError: there is no such share.
    """
    try:
        return {name: np.asarray(value) for name, value in case.share(inputs, rank, ranks).items()}
    except ValueError as error:
        raise InputError(f"--ranks {ranks}: case {case.name}: {error}") from None


def scalar_loss(losses: Any) -> Any:
    """The tensor to differentiate: the loss itself, or `losses["loss"]`; raises ValueError where there is neither."""
    if not isinstance(losses, Mapping):
        return losses
    if "loss" not in losses:
        raise ValueError(f'loss() returned {list(losses)} and no "loss" to differentiate')
    return losses["loss"]


class StepValues(NamedTuple):
    """What a model and its loss make of the inputs."""

    outputs: Any
    losses: Any
    """As `Case.loss` returned them."""
    loss: Any
    """To be differentiated."""


@dataclasses.dataclass
class StageContext:
    """One side, one stage, one precision."""

    case: Case
    framework: str
    backend: ModuleType
    dtype: str
    device: str
    build_model: Callable[[], Any]
    """Returns the model with its initial weights, in `dtype` on `device`."""
    canonical: CanonicalNames
    """What the tensors of this side are on the reference side."""
    progress: Callable[[str], None]
    moved: bool = False
    """Whether inputs are moved by one unit in the last place, to see what rounding does."""
    seed: int = 0
    """Of the framework's generators."""
    random_state: str | None = None
    """Digest of the framework's generators once the model was built, of a stage that looks after its draws."""
    rounded_to: str = ""
    """Half precision that inputs are rounded to in every run, so that nothing but the arithmetic differs; or none."""
    plan: TrainingPlan = dataclasses.field(default_factory=TrainingPlan)
    """What the train stage is to do otherwise than the case has it."""
    checkpoints: CheckpointPlace | None = None
    """Where a training may keep what it needs to go on after it was stopped."""
    points: Callable[[str, int, Mapping[str, float]], None] = lambda prefix, step, values: None
    """Told a training's prefix, its step and the newest value of each of its curves."""
    rank: int = 0
    """Of this process among those that record the stage together."""
    ranks: int = 1
    """How many there are."""
    recording: Recording = dataclasses.field(default_factory=Recording)

    def inputs(self, step: int = 0) -> dict[str, Any]:
        """The case's inputs for a step, this rank's share, as tensors; their hash goes into the metadata."""
        return self.as_tensors(self.step_inputs(step))

    def step_inputs(self, step: int = 0) -> dict[str, np.ndarray]:
        """Likewise, as arrays."""
        arrays = rounded(step_inputs(self.case, step), self.rounded_to)
        if self.ranks > 1:
            arrays = rank_inputs(self.case, arrays, self.rank, self.ranks)
        self.recording.metadata.setdefault("inputs_sha256", {})[str(step)] = hash_arrays(arrays)
        return dict(moved_arrays(arrays.items(), self.dtype)) if self.moved else arrays

    def as_tensors(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Arrays as tensors of the run's precision and device."""
        return {name: self.backend.to_tensor(array, self.dtype, self.device) for name, array in arrays.items()}

    def step_of(self, model: Any) -> Callable[[Mapping[str, Any]], StepValues]:
        """What takes the inputs to outputs and losses; of several ranks, so that gradients are averaged over them."""

        def run(model: Any, inputs: Mapping[str, Any]) -> tuple[tuple[Any, Any], Any]:
            outputs = self.case.forward(model, inputs, self.framework)
            losses = self.case.loss(outputs, inputs, self.framework)
            return (outputs, losses), scalar_loss(losses)

        def alone(inputs: Mapping[str, Any]) -> StepValues:
            (outputs, losses), loss = run(model, inputs)
            return StepValues(outputs, losses, loss)

        if self.ranks == 1:
            return alone
        step = load_distributed(self.framework).Step(model, run)
        parallel = self.case.distributed(step, self.framework)

        def together(inputs: Mapping[str, Any]) -> StepValues:
            loss = parallel(inputs)
            outputs, losses = step.seen
            return StepValues(outputs, losses, loss)

        return together

    def add(self, prefix: str, value: Any) -> None:
        """Record every leaf of `value` under `prefix`."""
        for name, leaf in named_values(value, self.backend.is_tensor, prefix):
            self.recording.add(name, self.as_array(leaf))

    def add_state(self, items: Iterable[tuple[str, str, np.ndarray]]) -> None:
        """Record arrays of parameters and buffers by sample, under the reference's names and in its layout.

        Args:
            items: prefix, key of this side, array.
        """
        for prefix, name, array in self.canonical.to_reference(items):
            self.recording.add_sampled(prefix + name, array)

    def as_array(self, leaf: Any) -> np.ndarray:
        """A tensor, array or number as an array."""
        return self.backend.to_array(leaf) if self.backend.is_tensor(leaf) else np.asarray(leaf)
