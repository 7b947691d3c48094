"""A training watched from outside: through the calls of the model and the steps of its optimizers, whatever the loop.

What is seen is recorded beside what the case records itself: learning rate, norms of the gradient, of each parameter
and buffer, distance of a moving average, size of the batches. The same places serve to put something of the reference
in the port's place (`TrainingPlan`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.patching import replaced
from twinalign.recording import save_npz
from twinalign.stages.checkpoints import CheckpointPlace, TrainingRecord
from twinalign.stages.naming import CanonicalNames

WEIGHT_NORM = "weight_norm."
BUFFER_NORM = "buffer_norm."
GRADIENT_NORM = "gradient_norm"
EMA_DISTANCE = "ema_distance"
LEARNING_RATE = "learning_rate"
BATCH_SIZE = "batch_size"
BATCH_RMS = "batch_rms"
RUNNING_VARIANCE = "running_var"
"""Paddle's are biased, torch's are not: the backward stage judges them, where such a convention can be accepted."""
_BATCH, _STATE, _OPTIMIZER = "batch.", "state.", "optimizer."
_SWITCH = "switch"
_SECONDS = "step_seconds"
_QUIET_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """How a training is to differ from the case's own, and what is kept of it.

    Attributes:
        repeat: whether the reference trains once more from where rounding may have put it.
        steps: that are made at most; 0 for as many as the precision asks for.
        keep: `.npz` file to write: every batch, the first state, and the state before the first call after each step.
        data, init, updates: such files: what to take batches, first state, or the later states from, call by call.
        switch_at: number of steps after which the state is written to `carry_out`, or taken from `carry_in`.
        carry_out: `.npz` file to write: weights, buffers and moving averages of the optimizer.
        carry_in: such a file.
    """

    repeat: bool = True
    steps: int = 0
    keep: str = ""
    data: str = ""
    init: str = ""
    updates: str = ""
    switch_at: int = 0
    carry_out: str = ""
    carry_in: str = ""


@dataclasses.dataclass
class Curves:
    """What a training gave: a value a step under each name, and the seconds that each step took."""

    points: dict[str, np.ndarray]
    outcomes: Mapping[str, Any]
    seconds: list[float]


def run_training(
    case: Any,
    framework: str,
    backend: ModuleType,
    model: Any,
    names: CanonicalNames,
    steps: int | None = None,
    plan: TrainingPlan | None = None,
    on_step: Callable[[int, Mapping[str, float]], None] = lambda step, values: None,
    place: CheckpointPlace | None = None,
    around: Callable[[Any], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Curves:
    """Let the case train, and return what it records together with what is seen from outside.

    Args:
        case: has `train`.
        framework: `"torch"` or `"paddle"`.
        backend: of that framework.
        model: with its weights; moves in place.
        names: how the reference calls and lays out the tensors of this side.
        steps: as of `Case.train`.
        plan: what is other than the case has it.
        on_step: called once a step is over, with its number, from 1, and the value of each curve that has one a step.
        place: where the case may keep checkpoints, if it may.
        around: given the model, returns what is entered around the watch: steps that it adds are seen, those that it
            leaves out are not.

    Raises:
        InputError: what a plan swaps in does not fit.
    """
    watch = _Watch(framework, backend, model, names, plan or TrainingPlan(), on_step, TrainingRecord(place))
    with watch.watching(), around(model):
        outcomes = case.train(framework, model, watch.record, steps)
    watch.finish()
    told = watch.record.told
    own = {name: points for name, points in watch.seen.items() if name not in told}
    return Curves({n: np.asarray(p) for n, p in {**told, **own}.items()}, outcomes or {}, watch.seconds)


class _Watch:
    def __init__(
        self,
        framework: str,
        backend: ModuleType,
        model: Any,
        names: CanonicalNames,
        plan: TrainingPlan,
        on_step: Callable[[int, Mapping[str, float]], None],
        record: TrainingRecord,
    ) -> None:
        self.record = record
        self.record.beside(lambda: {**self.seen, _SECONDS: self.seconds}, self._resume)
        self.seen: dict[str, list[float]] = {}
        self.seconds: list[float] = []
        self._backend, self._model, self._names, self._plan, self._on_step = backend, model, names, plan, on_step
        self._training = importlib.import_module(f"twinalign.backends.{framework}_training")
        self._kept: dict[str, np.ndarray] = {}
        self._calls = self._depth = self._steps = 0
        self._trained: dict[str, Any] = {}
        self._pairs: list[tuple[Any, Any]] = []
        self._optimizers: list[int] = []
        self._unreported = False
        self._kept_steps = 0
        self._last = time.perf_counter()
        self._given = {name: _read(getattr(plan, name)) for name in ("data", "init", "updates", "carry_in")}

    def _resume(self, curves: Mapping[str, list[float]]) -> None:
        """Go on with the curves of a training that was stopped."""
        self.seen = {name: points for name, points in curves.items() if name != _SECONDS}
        self.seconds = curves[_SECONDS]
        self._steps, self._calls = len(self.seconds), len(self.seen.get(BATCH_SIZE, ()))
        self._last = time.perf_counter()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """See calls and steps inside the block."""
        parts = [self._model, *(layer for path, layer in self._backend.named_layers(self._model) if _is_child(path))]
        with contextlib.ExitStack() as stack:
            for layer in parts:
                stack.enter_context(replaced(layer, "forward", functools.partial(self._call, layer, layer.forward)))
            stack.enter_context(self._training.watching_steps(self._before_step, self._after_step))
            self._last = time.perf_counter()
            yield

    def finish(self) -> None:
        """Report the last step, and write what the plan wants to be kept."""
        self._report()
        if self._plan.keep:
            save_npz(Path(self._plan.keep), self._kept)
        if self._plan.switch_at > self._steps:
            raise InputError(f"--switch-at {self._plan.switch_at}: the training has {self._steps} steps only")

    def _call(self, layer: Any, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        if self._depth == 0 and layer.training:
            self._swap_state()
            arguments, keywords = self._batch(arguments, keywords)
            self._calls += 1
        self._depth += 1
        try:
            return original(*arguments, **keywords)
        finally:
            self._depth -= 1

    def _swap_state(self) -> None:
        """Before a call: the first of all, or the first after a step, whose state the other side has kept."""
        if self._calls == 0 and self._given["init"]:
            self._load(self._given["init"], "0")
        if self._calls > 0 and self._given["updates"]:
            self._load(self._given["updates"], str(self._calls))
        if self._plan.keep and (self._calls == 0 or self._steps > self._kept_steps):
            self._kept |= {f"{_STATE}{self._calls}.{name}": array for name, array in self._state()}
            self._kept_steps = self._steps

    def _batch(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Take note of the tensors that a call is given, and replace them where the plan says so."""
        squares, count, size, number = 0.0, 0, 0, 0
        values: list[Any] = []
        for value in [*arguments, *keywords.values()]:
            if self._backend.is_tensor(value) and len(value.shape):
                value = self._replaced_batch(value, f"{_BATCH}{self._calls}.{number}")
                (norm,) = self._training.norms([value])
                squares, count, size = squares + norm**2, count + math.prod(value.shape), size or int(value.shape[0])
                number += 1
            values.append(value)
        if count:
            self._see(BATCH_SIZE, float(size))
            self._see(BATCH_RMS, math.sqrt(squares / count))
        return tuple(values[: len(arguments)]), dict(zip(keywords, values[len(arguments) :], strict=True))

    def _replaced_batch(self, value: Any, name: str) -> Any:
        given = self._given["data"].get(name)
        if given is not None:
            precision = str(value.dtype).rpartition(".")[2]
            device = "gpu" if "cuda" in str(getattr(value, "device", "")) or "gpu" in str(value.place) else "cpu"
            value = self._backend.to_tensor(given, precision, self._backend.device_of(device))
        if self._plan.keep:
            self._kept[name] = self._backend.to_array(value)
        return value

    def _is_mine(self, optimizer: Any) -> bool:
        held = {id(parameter) for parameter in self._training.held_parameters(optimizer)}
        mine = {n: p for n, p in self._backend.named_parameters(self._model).items() if id(p) in held}
        if mine and id(optimizer) not in self._optimizers:
            self._optimizers.append(id(optimizer))
            self._trained |= {n: p for n, p in mine.items() if self._backend.trainable(p)}
            self._pairs = self._averaged()
        return bool(mine)

    def _averaged(self) -> list[tuple[Any, Any]]:
        """Trained parameters, each with the one that no optimizer has and that is called alike below another part."""
        parameters = self._backend.named_parameters(self._model)
        rest = {name: p for name, p in parameters.items() if name not in self._trained}
        by_end = {name.partition(".")[2]: p for name, p in rest.items() if "." in name}
        pairs = [(p, by_end.get(name.partition(".")[2])) for name, p in self._trained.items() if "." in name]
        return [(one, other) for one, other in pairs if other is not None and list(one.shape) == list(other.shape)]

    def _before_step(self, optimizer: Any) -> None:
        if not self._is_mine(optimizer):
            return
        self._report()
        gradients = [self._training.gradient(p) for p in self._training.held_parameters(optimizer)]
        norms = self._training.norms([gradient for gradient in gradients if gradient is not None])
        number = self._optimizers.index(id(optimizer))
        end = f".{number + 1}" if number else ""
        self._see(GRADIENT_NORM + end, math.sqrt(sum(norm**2 for norm in norms)))
        self._see(LEARNING_RATE + end, self._backend.learning_rate(optimizer))

    def _after_step(self, optimizer: Any) -> None:
        if not self._is_mine(optimizer):
            return
        self._steps += 1
        if self._steps == self._plan.switch_at:
            self._switch(optimizer)
        self._see_norms(WEIGHT_NORM, self._trained)
        self._see_norms(BUFFER_NORM, self._training.floating_buffers(self._model))
        if self._pairs:
            self._see(EMA_DISTANCE, self._training.distance(self._pairs))
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now
        self._unreported = True

    def _see_norms(self, prefix: str, tensors: Mapping[str, Any]) -> None:
        """Of the tensors as the reference has them: several here may be parts of one there, or the other way round."""
        shares = [(part.name, part.share(tensor)) for key, tensor in tensors.items() for part in self._names.parts(key)]
        found: dict[str, list[float]] = {}
        for (name, _), norm in zip(shares, self._training.norms([share for _, share in shares]), strict=True):
            found.setdefault(name, []).append(norm)
        for name, of_parts in found.items():
            if not name.endswith(RUNNING_VARIANCE):
                self._see(prefix + name, math.hypot(*of_parts))

    def _report(self) -> None:
        """Tell the values of the last step, once the loop has had the time to record its own."""
        if self._unreported:
            self._unreported = False
            curves = {**self.seen, **self.record.told}
            # What is recorded before the step has one value more by now; several a step belong to none.
            found = {n: p[self._steps - 1] for n, p in curves.items() if 0 <= len(p) - self._steps <= 1}
            self._on_step(self._steps, found)

    def _see(self, name: str, value: float) -> None:
        self.seen.setdefault(name, []).append(value)

    def _state(self) -> Iterator[tuple[str, np.ndarray]]:
        items = (("", key, array) for key, array in self._backend.state_items(self._model))
        for _, name, array in self._names.to_reference(items):
            yield name, array

    def _load(self, given: Mapping[str, np.ndarray], at: str) -> None:
        """Take the state of a place, if the other side has kept one there."""
        prefix = f"{_STATE}{at}."
        kept = {name.removeprefix(prefix): array for name, array in given.items() if name.startswith(prefix)}
        if not kept:
            return
        arrays = self._backend.state_arrays(self._model)
        for key in arrays:
            if not self._names.parts(key):
                continue
            array = self._names.from_reference(key, kept)
            if array is None:
                raise InputError(f"{key}: the other side has no tensor for it, so it cannot be swapped")
            arrays[key] = array
        self._backend.load_state_arrays(self._model, arrays)

    def _switch(self, optimizer: Any) -> None:
        if self._plan.carry_out:
            found = {f"{_STATE}{_SWITCH}.{name}": array for name, array in self._state()}
            items = self._backend.optimizer_items(self._model, optimizer)
            for quantity, name, array in self._names.to_reference(items):
                found[f"{_OPTIMIZER}{quantity}.{name}"] = array
            save_npz(Path(self._plan.carry_out), found)
        elif given := self._given["carry_in"]:
            self._load(given, _SWITCH)
            self._take_averages(optimizer, given)

    def _take_averages(self, optimizer: Any, given: Mapping[str, np.ndarray]) -> None:
        """Step counts and powers of the betas are right by themselves: the optimizer has made as many steps."""
        items = {}
        for quantity in ("moment1", "moment2", "infinity_norm", "velocity"):
            prefix = f"{_OPTIMIZER}{quantity}."
            averages = {name.removeprefix(prefix): a for name, a in given.items() if name.startswith(prefix)}
            for key in self._backend.named_parameters(self._model):
                array = self._names.from_reference(key, averages)
                if array is not None:
                    items[quantity, key] = array
        missing = self._training.load_optimizer_items(self._model, optimizer, items)
        if missing:
            raise InputError(f"--switch-at: the other side's optimizer has no {missing[0]}; the optimizers differ")


def _is_child(path: str) -> bool:
    return bool(path) and "." not in path


def _read(path: str) -> dict[str, np.ndarray]:
    if not path:
        return {}
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


class Reporter:
    """Says how far a training is, at first soon and then not too often."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._last = 0.0

    def __call__(self, step: int, values: Mapping[str, float]) -> None:
        """After a step."""
        now = time.perf_counter()
        if step % 50 and now - self._last < _QUIET_SECONDS:
            return
        self._last = now
        self._progress(f"step {step}" + (f", loss {values['loss']:.4f}" if "loss" in values else ""))
