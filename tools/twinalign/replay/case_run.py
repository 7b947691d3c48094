"""One part of a case, ready to be run in a recorder process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.backends.protocol import Backend
from twinalign.case.definition import Case
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.recordings import hash_arrays
from twinalign.replay.layer_calls import FORWARD, LOSS, Around
from twinalign.replay.nested_tensors import take_apart
from twinalign.stages.context import scalar_loss, step_inputs

_STEP, _BUILT_IN_FLOAT64 = "step of the inputs", "models are built in float64"
PLAIN, REDRAWN, MOVED = 1, 2, 3
"""Second draws: the inputs that the case gives; the same where what does not differ from the first is drawn anew; and
that where parameters that begin with one value in all elements have others, too (`moves_of_constants`)."""
_FARTHEST = 0.5
"""By so much, relative to its value, or absolute where that is 0, a parameter of one value is moved."""
_TRIES = 8


@dataclasses.dataclass
class CaseRun:
    """A case with its model and the framework that runs them."""

    case: Case
    stage: str
    backend: Backend
    framework: str
    device: str
    dtype: str
    model: Any
    canonical: CanonicalNames
    """The reference's names of this side's tensors."""
    weights: Mapping[str, Any]
    """This side's weights, as the recorder takes them."""
    step: int = 0
    """The step whose inputs it gets."""
    draw: int = 0
    """Which draw of these inputs it gets: 0 is the step's own, then `PLAIN`, `REDRAWN` or `MOVED`."""
    parts: int = 1
    """Into so many parts the batch is cut (`Case.share`), of which it gets the first."""

    @classmethod
    def of(cls, worker: Any, stage: str, weights: Mapping[str, Any], draw: int = 0) -> CaseRun:
        """A fresh case and its model in float64 with the initial weights, in the mode in which the case records."""
        case, dtype = worker.fresh_case(stage), "float64"
        worker.backend.set_seed(case.seed)
        with worker.backend.default_dtype(dtype):
            exact = worker.kept.get(_BUILT_IN_FLOAT64, False)
            model = worker.build_model(case, stage, dtype, weights, built_in_float64=exact)
        worker.backend.set_training(model, case.train_mode)
        names = CanonicalNames.of(weights)
        step, backend = worker.kept.get(_STEP, 0), worker.backend
        return cls(case, stage, backend, worker.framework, worker.device, dtype, model, names, weights, step, draw)

    def inputs(self) -> dict[str, Any]:
        """The case's inputs of the step and draw, as tensors that share no memory with others."""
        return {name: self.backend.to_tensor(array, self.dtype, self.device) for name, array in self._arrays.items()}

    @functools.cached_property
    def _arrays(self) -> Mapping[str, np.ndarray]:
        """The inputs, which a case may take long to make: from pictures in files, say."""
        arrays = _drawn_inputs(self.case, self.step, self.draw)
        return self.case.share(arrays, 0, self.parts) if self.parts > 1 else arrays

    @property
    def has_loss(self) -> bool:
        """Whether the loss is called, which the stage forward does not do."""
        return self.stage != "forward" and type(self.case).loss is not Case.loss

    def through(self, around: Around) -> tuple[Any, Any]:
        """Call forward and loss through `around`; returns outputs and the scalar to differentiate, None without one."""
        inputs = self.inputs()
        outputs = around(FORWARD, None, lambda x: self.case.forward(self.model, x, self.framework), (inputs,), {})
        if not self.has_loss:
            return outputs, None
        losses = around(LOSS, None, lambda given: self.case.loss(given, inputs, self.framework), (outputs,), {})
        return outputs, scalar_loss(losses)

    def stand_in_loss(self, outputs: Any) -> Any:
        """For a case without a loss: the randomly weighted sum of the outputs; None if none is differentiable."""
        total = None
        for number, tensor in enumerate(take_apart(outputs, self.backend.is_tensor)[0]):
            if self.backend.differentiable(tensor):
                weights = np.random.default_rng([self.case.seed, number]).standard_normal(tuple(tensor.shape))
                term = (
                    tensor * self.backend.to_tensor(weights / max(1, weights.size) ** 0.5, self.dtype, self.device)
                ).sum()
                total = term if total is None else total + term
        return total


def _drawn_inputs(case: Case, step: int, draw: int) -> dict[str, np.ndarray]:
    """A draw of the case's inputs; what the case gives each time is turned around along its last axis for a second."""
    arrays = step_inputs(case, step + min(draw, PLAIN))
    if not draw:
        return arrays
    first = step_inputs(case, step)
    same = {name for name, array in arrays.items() if name in first and _is_same(array, first[name])}
    turned = hash_arrays(arrays) == hash_arrays(first)
    found = {name: np.flip(array, -1).copy() if array.ndim and turned else array for name, array in arrays.items()}
    if draw >= REDRAWN:
        generators = {name: np.random.default_rng([case.seed, step, at]) for at, name in enumerate(arrays)}
        found |= {name: _redrawn(arrays[name], generators[name]) for name in same}
    return found


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    return hash_arrays({"": one}) == hash_arrays({"": other})


def _redrawn(array: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A mask, lengths, positions or labels with other values of their own; what has a rounding is turned around.

    Each row keeps its least and its greatest value, for a row of a mask that hides everything gives NaN; where chance
    does not, the row's own values change places.
    """
    if array.ndim == 0 or not (array.dtype.kind in "iub" or is_whole(array)):
        return np.flip(array, -1).copy() if array.ndim else array
    values = np.unique(array)
    if len(values) < 2:
        return array
    rows = array.reshape(-1, array.shape[-1])
    found, left = generator.permuted(rows, axis=1), np.ones(len(rows), bool)
    least, most = rows.min(1), rows.max(1)
    for _ in range(_TRIES):
        new = generator.choice(values, rows.shape)
        ends = [new.min(1), new.max(1)]
        fits = left & (np.equal(ends, least).any(0) & np.equal(ends, most).any(0))
        found[fits], left = new[fits], left & ~fits
    return found.reshape(array.shape)


def moves_of_constants(run: CaseRun) -> dict[str, np.ndarray]:
    """By how much each trainable parameter whose elements are all equal is moved, by the names of this side.

    A term with a factor of zeros, or a bias of zeros, shows in no value until it is moved.
    """
    found = {}
    for at, (name, tensor) in enumerate(run.backend.named_parameters(run.model).items()):
        array = run.backend.to_array(tensor) if run.backend.trainable(tensor) else np.zeros(0)
        if array.size and array.min() == array.max():
            moves = np.random.default_rng([run.case.seed, at]).uniform(-_FARTHEST, _FARTHEST, array.shape)
            found[name] = moves * (abs(float(array.flat[0])) or 1.0)
    return found


def is_whole(array: np.ndarray) -> bool:
    """Whether these are several numbers of floating point, and all of them whole."""
    return bool(array.dtype.kind == "f" and array.size > 1 and (array == np.rint(array)).all())


def use_inputs_of_step(worker: Any, step: int) -> dict[str, Any]:
    """Let every later `CaseRun` of this process have the inputs of this step; returns how many steps there are."""
    worker.kept[_STEP] = step
    return {"steps": worker.case.part("backward").steps}


def build_in_float64(worker: Any, wanted: bool) -> dict[str, Any]:
    """Let every later `CaseRun` of this process have a model whose constructor makes its constants in float64, or not.

    Else they are built in float32, as a user's code is used to, and widened.
    """
    worker.kept[_BUILT_IN_FLOAT64] = wanted
    return {}


class KeptState:
    """Values that tensors had, which are copied anew only where they have changed since."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._kept: dict[str, tuple[np.ndarray, tuple[int, float]]] = {}

    def keep(self, tensors: Mapping[str, Any]) -> None:
        """Keep what they are now, by their names."""
        for name, tensor in tensors.items():
            if name not in self._kept or self._kept[name][1] != mark_of(self._backend, tensor):
                self._kept[name] = self._backend.to_array(tensor), mark_of(self._backend, tensor)

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Give those that have changed since the values that were kept."""
        for name, tensor in tensors.items():
            array, mark = self._kept[name]
            if mark_of(self._backend, tensor) != mark:
                if tuple(tensor.shape) != array.shape:  # code with an edit in it may write anything
                    self._backend.resize(tensor, array.shape)
                self._backend.assign(tensor, array)
                self._kept[name] = array, mark_of(self._backend, tensor)


def mark_of(backend: Backend, tensor: Any) -> tuple[int, float]:
    """What is another after a tensor has been changed in place."""
    return backend.version(tensor), backend.checksum(tensor)


@contextlib.contextmanager
def in_evaluation_mode(layer: Any) -> Iterator[None]:
    """Put this one layer into evaluation mode inside the block."""
    layer.training = False
    try:
        yield
    finally:
        layer.training = True
