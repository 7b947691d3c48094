"""A training recorded by hooks on the model's calls and its optimizers' steps, in any loop.

The hooks record curves in addition to the case's own: learning rate, norms of the gradient, of each parameter and
buffer, distance of a moving average, size of the batches. They can also put something of the other side into this
training (`training_plan.TrainingSwaps`).
"""

import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends.protocol import Backend
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.curve_names import (
    BATCH_RMS,
    BATCH_SIZE,
    BUFFER_NORM,
    EMA_DISTANCE,
    GRADIENT_NORM,
    LEARNING_RATE,
    WEIGHT_NORM,
)
from twinalign.patching import replaced
from twinalign.sides import HALVES
from twinalign.stages.checkpoints import CheckpointPlace, TrainingRecord
from twinalign.stages.training_plan import TrainingPlan, TrainingSwaps

_NARROWER = ("float32", *HALVES)
RUNNING_VARIANCE = "running_var"
"""Paddle's are biased, torch's are not: the backward stage judges them, where such a convention can be accepted."""
_SECONDS = "step_seconds"


@dataclasses.dataclass
class Curves:
    """The result of a training: one value per step under each name, and the seconds of each step.

    `rounded`: how many batches were the other side's, since they differed by rounding to float32.
    """

    points: dict[str, np.ndarray]
    outcomes: Mapping[str, Any]
    seconds: list[float]
    rounded: int = 0


def run_training(
    case: Any,
    framework: str,
    backend: Backend,
    model: Any,
    names: CanonicalNames,
    steps: int | None = None,
    plan: TrainingPlan | None = None,
    on_step: Callable[[int, Mapping[str, float]], None] = lambda step, values: None,
    place: CheckpointPlace | None = None,
    around: Callable[[Any], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    at_once: Callable[[Mapping[str, Sequence[float]]], None] = lambda curves: None,
) -> Curves:
    """Let the case train, and return its own curves together with those recorded by hooks.

    The reference follows the conventions that the case accepts: else they would show in every evaluation in between.

    Args:
        model: with its weights; changed in place.
        names: the reference's names and layouts of this side's tensors.
        steps: as in `Case.train`.
        on_step: called after each step with its number, from 1, and the value of each curve with one value per step.
        place: where the case may keep checkpoints, if it may.
        around: given the model, returns a context entered around the hooks: steps that it adds are recorded, steps that
            it skips are not.
        at_once: called as soon as a step ends, before the loop has recorded anything of it, with the hooks' curves.

    Raises:
        InputError: what a plan swaps in does not fit.
    """
    watch = _Watch(backend, model, names, plan or TrainingPlan(), on_step, TrainingRecord(place))
    watch.at_once = at_once
    with watch.watching(), around(model), backend.following(case.accept):
        outcomes = case.train(framework, model, watch.record, steps)
    watch.finish()
    told = watch.record.told
    own = {name: points for name, points in watch.seen.items() if name not in told}
    points = {n: np.asarray(p) for n, p in {**told, **own}.items()}
    return Curves(points, outcomes or {}, watch.seconds, watch.swaps.replaced)


def norms_of(backend: Backend, names: CanonicalNames, tensors: Mapping[str, Any]) -> dict[str, float]:
    """Norms of the tensors as the reference has them; one side may pack several tensors of the other."""
    shares = [(part.name, part.share(tensor)) for key, tensor in tensors.items() for part in names.parts(key)]
    found: dict[str, list[float]] = {}
    for (name, _), norm in zip(shares, backend.norms([share for _, share in shares]), strict=True):
        found.setdefault(name, []).append(norm)
    return {name: math.hypot(*of_parts) for name, of_parts in found.items()}


class _Watched(functools.partial[Any]):
    """A layer's `forward` that is seen; a deep copy of the layer, such as a moving average, has its own again."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.args[1], memo)


def _is_of_framework(optimizer: Any) -> bool:
    return type(optimizer).__module__.startswith(("torch.", "paddle."))


def _is_copy(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two parts have the same parameters, as far as one of them has any."""
    shapes = [{end: list(p.shape) for end, p in part.items()} for part in (one, other)]
    fewer, more = sorted(shapes, key=len)
    return all(more.get(end) == shape for end, shape in fewer.items())


class _Watch:
    def __init__(
        self,
        backend: Backend,
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
        self._backend, self._model, self._names, self._on_step = backend, model, names, on_step
        self.swaps = TrainingSwaps(plan, backend, model, names)
        self._calls = self._depth = self._steps = 0
        self._layers: list[Any] = []
        self._had_mode = False
        """Whether anything of the model has been in training mode."""
        self._trained: dict[str, Any] = {}
        own = backend.named_parameters(model)
        self._buffers_there = {key: own[key] for key in own.keys() & names.buffers_there}
        self._pairs: list[tuple[Any, Any]] = []
        parameters = backend.named_parameters(model).values()
        self._is_float64 = any(backend.dtype_name(one) == "float64" for one in parameters)
        self._optimizers: list[int] = []
        self._gradient_norms: dict[int, float] = {}
        self._gradient_curve = ""
        """The name of the curve while an optimizer makes its step."""
        self._unreported = False
        self._last = time.perf_counter()
        self.at_once: Callable[[Mapping[str, Sequence[float]]], None] = lambda curves: None

    def _resume(self, curves: Mapping[str, list[float]]) -> None:
        self.seen = {name: points for name, points in curves.items() if name != _SECONDS}
        self.seconds = curves[_SECONDS]
        self._steps, self._calls = len(self.seconds), len(self.seen.get(BATCH_SIZE, ()))
        self._last = time.perf_counter()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        layers = self._backend.named_layers(self._model)
        with contextlib.ExitStack() as stack:
            self._layers = [self._model, *(layer for path, layer in layers if path and "." not in path)]
            for layer in self._layers:
                stack.enter_context(replaced(layer, "forward", _Watched(self._call, layer, layer.forward)))
            stack.enter_context(self._backend.watching_steps(self._before_step, self._after_step, self._inside_step))
            stack.enter_context(self._backend.watching_clipping(lambda kind, limit: None, self._after_clipping))
            self._last = time.perf_counter()
            yield

    def finish(self) -> None:
        self._report()
        self.swaps.finish(self._steps)

    def _call(self, layer: Any, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        if self._depth == 0:
            if self._is_float64:
                arguments, keywords = self._in_float64(arguments), self._in_float64(keywords)
            if self._is_of_training(layer):
                self.swaps.before_call(self._calls, self._steps)
                arguments, keywords = self._batch(arguments, keywords)
                self._calls += 1
        self._depth += 1
        try:
            return original(*arguments, **keywords)
        finally:
            self._depth -= 1

    def _is_of_training(self, layer: Any) -> bool:
        """Whether a call is not an evaluation's; a loop may never put its model into training mode."""
        self._had_mode = self._had_mode or any(one.training for one in self._layers)
        return layer.training or (not self._had_mode and self._backend.is_recording_gradients())

    def _in_float64(self, given: Any) -> Any:
        """What a call is given, in float64 if the model is: data are read in float32."""
        if self._backend.is_tensor(given):
            # Both frameworks have `double`.
            return given.double() if self._backend.dtype_name(given) in _NARROWER else given
        if type(given) is dict:
            return {name: self._in_float64(one) for name, one in given.items()}
        return type(given)(map(self._in_float64, given)) if type(given) in (tuple, list) else given

    def _batch(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Record the tensors that a call receives, and replace them if the plan says so."""
        squares, count, size, number = 0.0, 0, 0, 0
        values: list[Any] = []
        for value in [*arguments, *keywords.values()]:
            if self._backend.is_tensor(value) and len(value.shape):
                value = self.swaps.batch(value, self._calls, number)
                (norm,) = self._backend.norms([value])
                squares, count, size = squares + norm**2, count + math.prod(value.shape), size or int(value.shape[0])
                number += 1
                value = self.swaps.rounded(value, self._calls)
            values.append(value)
        if count:
            self._see(BATCH_SIZE, float(size))
            self._see(BATCH_RMS, math.sqrt(squares / count))
        return tuple(values[: len(arguments)]), dict(zip(keywords, values[len(arguments) :], strict=True))

    def _is_mine(self, optimizer: Any) -> bool:
        held = {id(parameter) for parameter in self._backend.held_parameters(optimizer)}
        mine = {n: p for n, p in self._backend.named_parameters(self._model).items() if id(p) in held}
        if mine and id(optimizer) not in self._optimizers:
            self._optimizers.append(id(optimizer))
            self._trained |= {n: p for n, p in mine.items() if self._backend.trainable(p)}
            self._pairs = self._averaged()
        return bool(mine)

    def _averaged(self) -> list[tuple[Any, Any]]:
        """Trained parameters, each with the one of the same name in a part of the model that is not trained.

        That part is an average if it has no parameter that the trained part lacks, or the other way round: a frozen
        layer, such as one that subtracts a mean, may share a name or two with any other.
        """
        parts: dict[str, dict[str, Any]] = {}
        for name, parameter in self._backend.named_parameters(self._model).items():
            part, inside, end = name.partition(".")
            if inside:
                parts.setdefault(part, {})[end] = parameter
        trained = {part for part in parts if any(f"{part}.{end}" in self._trained for end in parts[part])}
        found: dict[str, tuple[Any, Any]] = {}
        for one, other in itertools.product(parts, parts):
            if one in trained and other not in trained and _is_copy(parts[one], parts[other]):
                own = {end: p for end, p in parts[one].items() if f"{one}.{end}" in self._trained}
                found |= {f"{one}.{end}": (p, parts[other][end]) for end, p in own.items() if end in parts[other]}
        return list(found.values())

    def _before_step(self, optimizer: Any) -> None:
        if not self._is_mine(optimizer):
            return
        self._report()
        held = {id(p) for p in self._backend.held_parameters(optimizer)}
        self._gradient_norms = self._norms_of_gradients(optimizer)
        number = self._optimizers.index(id(optimizer))
        end = f".{number + 1}" if number else ""
        self._gradient_curve = GRADIENT_NORM + end
        self._see(self._gradient_curve, math.hypot(*self._gradient_norms.values()))
        # Of the model's first parameter: groups may stand in another order.
        first = next((p for p in self._trained.values() if id(p) in held), None)
        self._see(LEARNING_RATE + end, self._backend.learning_rate(optimizer, first))

    def _inside_step(self, optimizer: Any) -> None:
        """A user's class may clip before its step calls that of the framework; what this leaves is what others clip."""
        if self._gradient_curve and self._is_mine(optimizer) and not _is_of_framework(optimizer):
            self._see_clipped(self._norms_of_gradients(optimizer))

    def _behind_own_step(self, optimizer: Any) -> None:
        """The same of a class whose step calls none of the framework's: what makes no gradient greater clips.

        Some write more into the gradient, such as a decay.
        """
        if not self._gradient_curve or _is_of_framework(optimizer):
            return
        left, before = self._norms_of_gradients(optimizer), self._gradient_norms
        if left.keys() == before.keys() and all(norm <= before[key] for key, norm in left.items()):
            self._see_clipped(left)

    def _norms_of_gradients(self, optimizer: Any) -> dict[int, float]:
        held = {id(p): p.grad for p in self._backend.held_parameters(optimizer) if p.grad is not None}
        return dict(zip(held, self._backend.norms(list(held.values())), strict=True))

    def _see_clipped(self, norms: Mapping[int, float]) -> None:
        """Norms of gradients by the parameter's id, in place of those that were seen at the beginning of the step."""
        self._gradient_norms = dict(norms)
        self.seen[self._gradient_curve][-1] = math.hypot(*self._gradient_norms.values())

    def _after_clipping(self, norm: Any, pairs: Any) -> None:
        """An optimizer of paddle clips inside of its step; what this leaves is what others clip before theirs."""
        if not self._gradient_curve or pairs is None:
            return
        left = {id(parameter): gradient for parameter, gradient in pairs if gradient is not None}
        norms = zip(left, self._backend.norms(list(left.values())), strict=True)
        self._see_clipped({**self._gradient_norms, **dict(norms)})

    def _after_step(self, optimizer: Any) -> None:
        if not self._is_mine(optimizer):
            return
        self._behind_own_step(optimizer)
        self._gradient_curve = ""
        self._steps += 1
        self.swaps.after_step(optimizer, self._steps)
        self._see_norms(WEIGHT_NORM, self._trained)
        self._see_norms(BUFFER_NORM, self._backend.floating_buffers(self._model) | self._buffers_there)
        if self._pairs:
            self._see(EMA_DISTANCE, self._backend.distance(self._pairs))
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now
        self._unreported = True
        self.at_once(self.seen)

    def _see_norms(self, prefix: str, tensors: Mapping[str, Any]) -> None:
        for name, norm in norms_of(self._backend, self._names, tensors).items():
            if not name.endswith(RUNNING_VARIANCE):
                self._see(prefix + name, norm)

    def _report(self) -> None:
        """Report the values of the last step, once the loop has had time to record its own."""
        if self._unreported:
            self._unreported = False
            curves = {**self.seen, **self.record.told}
            # What is recorded before the step has one value more by now; several a step belong to none.
            found = {n: p[self._steps - 1] for n, p in curves.items() if 0 <= len(p) - self._steps <= 1}
            self._on_step(self._steps, found)

    def _see(self, name: str, value: float) -> None:
        self.seen.setdefault(name, []).append(value)
