"""What of a training is kept for the other side, and what of the other side replaces its own."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends.protocol import Backend
from twinalign.case.moved_values import OF_FLOAT32, moved_at_random, whole_numbers_kept
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.errors import InputError
from twinalign.files.recordings import save_npz

_BATCH, _STATE, _OPTIMIZER = "batch.", "state.", "optimizer."
_SWITCH = "switch"
_OF_ONE = 10.0
"""An element may differ by so many times what batches do on the average: behind a resampling and a power, single ones
do."""


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """How a training differs from the case's own, and what is kept of it.

    Attributes:
        repeat: whether the reference trains once more with changes as small as rounding.
        steps: the greatest number of steps; 0 for as many as the precision needs.
        keep: `.npz` file to write: every batch, the first state, and the state before the first call after each step.
        keep_state: whether states are kept as well, and not the batches alone.
        data, init, updates: such files: the source of the batches, of the first state, or of later states, call by
            call.
        rounded: such a file: the source of batches that differ by no more than rounding to float32.
        switch_at: number of steps after which the state is written to `carry_out`, or read from `carry_in`.
        carry_out: `.npz` file to write: weights, buffers and moving averages of the optimizer.
        carry_in: such a file.
        moved: whether batches are given to the model with changed last bits, as two frameworks may round them.
    """

    repeat: bool = True
    steps: int = 0
    keep: str = ""
    keep_state: bool = True
    data: str = ""
    init: str = ""
    updates: str = ""
    rounded: str = ""
    switch_at: int = 0
    carry_out: str = ""
    carry_in: str = ""
    moved: bool = False


class TrainingSwaps:
    """Keeps batches and states of a training, and replaces them with the other side's, as a plan says."""

    def __init__(self, plan: TrainingPlan, backend: Backend, model: Any, names: CanonicalNames) -> None:
        self._plan, self._backend, self._model, self._names = plan, backend, model, names
        self._given = {name: _read(getattr(plan, name)) for name in ("data", "init", "updates", "rounded", "carry_in")}
        self._kept: dict[str, np.ndarray] = {}
        self.replaced = 0
        """How many batches differed by rounding to float32, and were replaced."""
        self._kept_steps = 0

    def before_call(self, call: int, steps: int) -> None:
        """Replace the state before the first call, and before later calls if the other side has kept a state there.

        Calls of the model in training mode are counted from 0; `steps` have been made so far.
        """
        if call == 0 and self._given["init"]:
            self._load(self._given["init"], "0")
        if call > 0 and self._given["updates"]:
            self._load(self._given["updates"], str(call))
        if self._plan.keep and self._plan.keep_state and (call == 0 or steps > self._kept_steps):
            self._kept |= {f"{_STATE}{call}.{name}": array for name, array in self._state()}
            self._kept_steps = steps

    def batch(self, value: Any, call: int, number: int) -> Any:
        """The tensor to pass instead of the one numbered `number` of a call; one that has a gradient is no data."""
        if self._backend.differentiable(value):
            return value
        name = f"{_BATCH}{call}.{number}"
        given = self._given["data"].get(name)
        if given is None and (known := self._given["rounded"].get(name)) is not None:
            given = known if _is_rounded(self._backend.to_array(value), known) else None
            self.replaced += given is not None
        if given is not None:
            value = self._backend.to_tensor_like(given, value)
        if self._plan.keep:
            self._kept[name] = self._backend.to_array(value)
        return value

    def rounded(self, value: Any, call: int) -> Any:
        """The tensor, with changed last bits if it is float32 data, without a gradient, and the plan says so."""
        is_data = self._backend.dtype_name(value) == "float32" and not self._backend.differentiable(value)
        if not (self._plan.moved and is_data):
            return value
        given = {"": self._backend.to_array(value)}
        return self._backend.to_tensor_like(whole_numbers_kept(moved_at_random(given, call), given)[""], value)

    def after_step(self, optimizer: Any, steps: int) -> None:
        """After the plan's number of steps, write the whole state for the other side, or read it."""
        if steps != self._plan.switch_at:
            return
        if self._plan.carry_out:
            found = {f"{_STATE}{_SWITCH}.{name}": array for name, array in self._state()}
            items = self._backend.optimizer_items(self._model, optimizer)
            for quantity, name, array in self._names.to_reference(items):
                found[f"{_OPTIMIZER}{quantity}.{name}"] = array
            save_npz(Path(self._plan.carry_out), found)
        elif given := self._given["carry_in"]:
            self._load(given, _SWITCH)
            self._take_averages(optimizer, given)

    def finish(self, steps: int) -> None:
        """Write what is kept; raises InputError if the training ended before the switch."""
        if self._plan.keep:
            save_npz(Path(self._plan.keep), self._kept)
        if self._plan.switch_at > steps:
            raise InputError(f"--switch-at {self._plan.switch_at}: the training has only {steps} steps")

    def _state(self) -> Iterator[tuple[str, np.ndarray]]:
        items = (("", key, array) for key, array in self._backend.state_items(self._model))
        for _, name, array in self._names.to_reference(items):
            yield name, array

    def _load(self, given: Mapping[str, np.ndarray], at: str) -> None:
        """Load the state that the other side kept at `at`, if any."""
        prefix = f"{_STATE}{at}."
        kept = {name.removeprefix(prefix): array for name, array in given.items() if name.startswith(prefix)}
        if not kept:
            return
        arrays = dict(self._backend.state_items(self._model))
        for key in arrays:
            if not self._names.parts(key):
                continue
            array = self._names.from_reference(key, kept)
            if array is None:
                raise InputError(f"{key}: the other side has no such tensor, so it cannot be swapped")
            arrays[key] = array
        self._backend.load_state_arrays(self._model, arrays)

    def _take_averages(self, optimizer: Any, given: Mapping[str, np.ndarray]) -> None:
        """Step counts and powers of the betas need no transfer: the optimizer has made the same number of steps."""
        averages: dict[str, dict[str, np.ndarray]] = {}
        for name, array in given.items():
            if name.startswith(_OPTIMIZER):
                quantity, _, parameter_name = name.removeprefix(_OPTIMIZER).partition(".")
                averages.setdefault(quantity, {})[parameter_name] = array
        for key, parameter in self._backend.named_parameters(self._model).items():
            for quantity, average in self._backend.optimizer_averages(optimizer, parameter):
                known = self._names.from_reference(key, averages.get(quantity, {}))
                if known is None:
                    raise InputError(
                        f"--switch-at: the other side's optimizer has no {quantity} of {key}; the optimizers differ"
                    )
                self._backend.assign(average, known)


def keep_data(path: Path, moved: Path) -> None:
    """Leave in a file of what was kept only what another training from changed weights, in `moved`, was given as well.

    What is made of the model's own results, such as the image of a generator, is no data.
    """
    kept, other = _read(str(path)), _read(str(moved))

    def stays(name: str) -> bool:
        return not name.startswith(_BATCH) or (name in other and np.array_equal(kept[name], other[name]))

    save_npz(path, {name: array for name, array in kept.items() if stays(name)})
    moved.unlink()


def _is_rounded(own: np.ndarray, given: np.ndarray) -> bool:
    """Whether two batches differ, by no more than rounding to float32 here and there makes: on the average, and in each
    element."""
    if own.shape != given.shape or "f" not in (own.dtype.kind, given.dtype.kind):
        return False
    apart, size = np.abs(own - given), np.abs(given)
    on_average = np.linalg.norm(apart) <= OF_FLOAT32 * np.linalg.norm(size)
    return bool(on_average) and 0.0 < apart.max(initial=0.0) <= _OF_ONE * OF_FLOAT32 * size.max(initial=0.0)


def _read(path: str) -> dict[str, np.ndarray]:
    if not path:
        return {}
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)
