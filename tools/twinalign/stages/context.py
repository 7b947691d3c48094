"""The values and methods available to a stage while it records one side."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from twinalign.backends.protocol import Backend
from twinalign.case.calling import named_values
from twinalign.case.definition import Case
from twinalign.case.moved_values import moved_values, whole_numbers_kept
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.errors import InputError
from twinalign.files.half_precision import rounded
from twinalign.files.recordings import Recording, hash_arrays
from twinalign.stages.checkpoints import CheckpointPlace
from twinalign.stages.training_plan import TrainingPlan


def step_inputs(case: Case, step: int = 0) -> dict[str, np.ndarray]:
    """The case's inputs for a step; each side makes them itself from the same seed.

    Raises:
        InputError: they are not a dictionary, or there are none.
    """
    given = case.inputs(np.random.default_rng([case.seed, step]))
    if not isinstance(given, Mapping):
        raise InputError(
            f"case {case.name}: inputs(rng) returned {type(given).__name__}; return a dictionary, name -> array"
        )
    arrays = {name: np.asarray(value) for name, value in given.items()}
    if not arrays:
        raise InputError(f"case {case.name}: inputs(rng) returned an empty dictionary; return name -> array")
    return arrays


def rank_inputs(case: Case, inputs: Mapping[str, np.ndarray], rank: int, ranks: int) -> dict[str, np.ndarray]:
    """The share of a step's inputs of one of several ranks, by `Case.share`.

    Raises:
        InputError: there is no such share.
    """
    try:
        return {name: np.asarray(value) for name, value in case.share(inputs, rank, ranks).items()}
    except ValueError as error:
        raise InputError(f"--ranks {ranks}: case {case.name}: {error}") from None


def scalar_loss(losses: Any) -> Any:
    """The tensor to differentiate: the loss itself, or `losses["loss"]`; raises InputError if there is neither."""
    found = losses.get("loss") if isinstance(losses, Mapping) else losses
    if hasattr(found, "backward"):
        return found
    returned = f"a dict of {list(losses)}" if isinstance(losses, Mapping) else f"a {type(losses).__name__}"
    raise InputError(
        f'loss() returned {returned}; return the tensor to differentiate, or {{"loss": that tensor}} with further parts'
    )


class StepValues(NamedTuple):
    """What a model and its loss return for the inputs."""

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
    backend: Backend
    dtype: str
    device: str
    build_model: Callable[[], Any]
    """Returns the model with its initial weights, in `dtype` on `device`."""
    canonical: CanonicalNames
    """What the tensors of this side are on the reference side."""
    progress: Callable[[str], None]
    construct: Callable[[int], Any] = lambda further_seeds: None
    """Returns a freshly built model, as the case gives it; takes by how many the seed is behind the case's own."""
    repeat: int = 0
    """Number of a repeat whose weights and inputs are moved by last bits, to see what rounding does; 0 for none."""
    further_seeds: int = 0
    """By how many the seed of the framework's generators is behind the case's own."""
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
    """Number of this process among the `ranks` that record the stage together."""
    ranks: int = 1
    recording: Recording = dataclasses.field(default_factory=Recording)

    def inputs(self, step: int = 0) -> dict[str, Any]:
        """The inputs for a step (this rank's share) as tensors; their hash goes into the metadata."""
        return self.as_tensors(self.step_inputs(step))

    def step_inputs(self, step: int = 0) -> dict[str, np.ndarray]:
        """The same as arrays."""
        arrays = rounded(step_inputs(self.case, step), self.rounded_to)
        if self.ranks > 1:
            arrays = rank_inputs(self.case, arrays, self.rank, self.ranks)
        self.recording.metadata.setdefault("inputs_sha256", {})[str(step)] = hash_arrays(arrays)
        return whole_numbers_kept(moved_values(arrays, self.dtype, self.repeat), arrays) if self.repeat else arrays

    def as_tensors(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {name: self.backend.to_tensor(array, self.dtype, self.device) for name, array in arrays.items()}

    def step_of(self, model: Any) -> Callable[[Mapping[str, Any]], StepValues]:
        """A function from inputs to outputs and losses; with several ranks, gradients are averaged over them."""

        def run(model: Any, inputs: Mapping[str, Any]) -> tuple[tuple[Any, Any], Any]:
            outputs = self.case.forward(model, inputs, self.framework)
            losses = self.case.loss(outputs, inputs, self.framework)
            return (outputs, losses), self._one_number(scalar_loss(losses))

        def alone(inputs: Mapping[str, Any]) -> StepValues:
            (outputs, losses), loss = run(model, inputs)
            return StepValues(outputs, losses, loss)

        if self.ranks == 1:
            return alone
        step = self.backend.loss_layer(model, run)
        parallel = self.case.distributed(step, self.framework)

        def together(inputs: Mapping[str, Any]) -> StepValues:
            loss = parallel(inputs)
            outputs, losses = step.seen
            return StepValues(outputs, losses, loss)

        return together

    def _one_number(self, loss: Any) -> Any:
        # The port's is compared with it: there a vector is a fault to be found, of which paddle differentiates the sum.
        if self.framework == "torch" and math.prod(getattr(loss, "shape", ())) != 1:
            raise InputError(
                f"case {self.case.name}: loss() returned a tensor of shape {list(loss.shape)} on the reference's side; "
                'return one number, its mean say, or {"loss": that number, "each": the tensor}'
            )
        return loss

    def add(self, prefix: str, value: Any) -> None:
        """Record every leaf of `value` under `prefix`.

        The metadata name what holds no numbers, such as a cache (`left_out`), and what is a single number of Python's
        or numpy's (`numbers`), whose type says nothing: `.item()` makes float64 of float32.
        """
        left_out: dict[str, str] = {}
        numbers: list[str] = []
        for name, leaf in named_values(value, self.backend.is_tensor, prefix, left_out):
            self.recording.add(name, self.as_array(leaf))
            if isinstance(leaf, (float, np.floating)):
                numbers.append(name)
        metadata = self.recording.metadata
        if left_out:
            metadata["left_out"] = {**metadata.get("left_out", {}), **left_out}
        if numbers:
            metadata["numbers"] = [*metadata.get("numbers", ()), *numbers]

    def add_state(self, items: Iterable[tuple[str, str, np.ndarray]]) -> None:
        """Record parameters and buffers (prefix, key of this side, array) by sample, as the reference has them."""
        for prefix, name, array in self.canonical.to_reference(items):
            self.recording.add_sampled(prefix + name, array)

    def as_array(self, leaf: Any) -> np.ndarray:
        return self.backend.to_array(leaf) if self.backend.is_tensor(leaf) else np.asarray(leaf)
