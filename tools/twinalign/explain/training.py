"""Faults of training loops, proven on the first steps of the reference's own training in float64."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from twinalign.averaging import averaging_method
from twinalign.explain.component import Replaced, allowed_remainder, explain, wrong_names
from twinalign.explain.registry import Hypothesis, Variant, register
from twinalign.locate.components import distance, root_mean_square
from twinalign.locate.training_curves import Around, Curves, floors_of, read_curves, train
from twinalign.patching import replaced
from twinalign.stages.watching import GRADIENT_NORM, WEIGHT_NORM

_MOST_TRIES, _FITTED = 12, 1e-8
_SAME = 1e-6
"""A curve is another by a factor where no more than this is left; whether it is the cause is for the proof to say."""


class _RefutedError(Exception):
    """A curve is not the port's."""


class TrainingSubject:
    """What hypotheses of the phase train are given.

    Attributes:
        port, reference, floors: curve's name → one value a step.
        around: given the model, returns what is entered while it trains.
        finish: changes the curves.
        axes: parameter or buffer of the reference → its number of axes.
    """

    def __init__(self, worker: Any, weights: Mapping[str, Any], reference: str, port: str) -> None:
        """Read what both sides have recorded."""
        self.impatient = False
        self.reference, moved = read_curves(reference)
        self.port, _ = read_curves(port)
        self.floors = floors_of(self.reference, moved)
        self.around: Around | None = None
        self.finish: Callable[[Curves], Curves] | None = None
        self._worker, self._weights = worker, weights
        with np.load(weights["path"], allow_pickle=False) as stored:
            self.axes = {name: stored[name].ndim for name in stored}

    def run(self) -> Curves:
        """The reference's curves, as it trains at present."""
        patient = not self.impatient or self.finish
        try:
            on_step = (lambda step, values: None) if patient else self._refute
            curves = train(self._worker, self._weights, begin=self.around, on_step=on_step)
        except _RefutedError:
            return {}
        return self.finish(curves) if self.finish else curves

    def _refute(self, step: int, values: Mapping[str, float]) -> None:
        """End a training whose curves can no longer come out as the port's, however it goes on."""
        for name, allowed in self._allowed.items():
            port = self.port[name]
            if name in values and step <= len(port) and abs(values[name] - port[step - 1]) > allowed * len(port) ** 0.5:
                raise _RefutedError

    @functools.cached_property
    def _allowed(self) -> dict[str, float]:
        """Root mean square that may be left of each curve that has a value a step."""
        found = {}
        for name, port in self.port.items():
            if len(port) == len(self.port.get(GRADIENT_NORM, ())):
                before, floor = distance(self.reference.get(name), port), self.floors.get(name, 0.0)
                found[name] = floor if before <= floor else allowed_remainder(before, floor)
        return found

    def holds_everywhere(self) -> bool:
        """All curves are compared already."""
        return True

    @functools.cached_property
    def first_to_part(self) -> frozenset[str]:
        """Parameters whose sizes differ in the first step in which any does: their updates are wrong, others' not."""
        apart: dict[str, int] = {}
        for name in wrong_names(self):
            ours, theirs = self.port[name], self.reference.get(name)
            if not name.startswith(WEIGHT_NORM) or theirs is None or theirs.shape != ours.shape:
                continue
            steps = np.flatnonzero(np.abs(ours - theirs) > self.floors.get(name, 0.0))
            if len(steps):
                apart[name.removeprefix(WEIGHT_NORM)] = int(steps[0])
        return frozenset(name for name, step in apart.items() if step == min(apart.values()))

    def trained(self, detail: str, around: Around) -> Replaced:
        """The variant in which the reference trains inside of what `around` returns for its model."""
        return Replaced(detail, self, {"around": around})


def _loops() -> Any:
    """Imported where it is needed: only the reference's process has torch."""
    from twinalign.backends import torch_training

    return torch_training


class TrainingHypothesis(Hypothesis):
    """A hypothesis about a training loop: a subclass defines `of`, which gives the variants."""

    phase = "train"

    def variants(self, subject: Any) -> Iterable[Variant]:
        """None where it is no training that is examined."""
        return self.of(subject) if isinstance(subject, TrainingSubject) else ()

    def of(self, subject: TrainingSubject) -> Iterable[Variant]:
        """The ways in which this can hold, the likeliest first."""
        raise NotImplementedError


def explain_training(worker: Any, weights: Mapping[str, Any], reference: str, port: str) -> dict[str, Any]:
    """Why the port's curves differ; called in the reference's process.

    Args:
        worker: the recorder that calls.
        weights: what `Worker.build_model` takes.
        reference, port: files of `record_curves`.

    Returns:
        `explanation`: of `Explanation.to_json`, or None.
    """
    found = explain(TrainingSubject(worker, weights, reference, port), None, "train")
    return {"explanation": found.to_json() if found else None}


@register
class CurveScaled(TrainingHypothesis):
    """The sum over accumulation steps or ranks, a loss in another unit: the training itself is right."""

    id = "curve_scaled"
    text = "a curve is recorded in another unit, while the training is the same"

    def of(self, subject: TrainingSubject) -> Iterator[Variant]:
        """One factor for all steps of a curve."""
        for name, factor in _factors(subject):
            yield Replaced(f"{name} times {factor:.6g}", subject, {"finish": _scaling(name, factor)})


def _scaling(name: str, factor: float) -> Callable[[Curves], Curves]:
    return lambda curves: {**curves, name: curves[name] * factor}


@register
class TrainsInEvaluationMode(TrainingHypothesis):
    """`model.train()` is never called after an evaluation, or the loop calls `eval`."""

    id = "evaluation_mode"
    text = "the training runs in evaluation mode: batch norm and dropout do not train"

    def of(self, subject: TrainingSubject) -> Iterator[Variant]:
        """All layers."""
        yield subject.trained("", _loops().evaluating)


@register
class GradientsKept(TrainingHypothesis):
    """Paddle's optimizers do not clear gradients by themselves; `clear_grad` is forgotten or comes too rarely."""

    id = "gradients_accumulate"
    text = "gradients are not cleared between steps, and add up"
    difference = "grad_accumulation"

    def of(self, subject: TrainingSubject) -> Iterator[Variant]:
        """Never cleared."""
        yield subject.trained("", _loops().gradients_kept)


@register
class StepsSkipped(TrainingHypothesis):
    """Accumulation over more batches than meant, a condition on the step's number, a scaler that holds back."""

    id = "step_skipped"
    text = "the optimizer leaves steps out"

    def of(self, subject: TrainingSubject) -> Iterator[Variant]:
        """Every second or third one, all but these, all."""
        for detail, period, taken in (
            ("every second one", 2, (0,)),
            ("the first of two", 2, (1,)),
            ("two of three", 3, (0,)),
            ("the first two of three", 3, (2,)),
            ("every third one", 3, (0, 1)),
            ("all of them", 1, ()),
        ):
            yield subject.trained(detail, _loops().stepping(_at(period, taken)))


def _at(period: int, taken: tuple[int, ...]) -> Callable[[int], int]:
    return lambda number: int(number % period in taken)


@register
class StepsTwice(TrainingHypothesis):
    """`scaler.step` and `optimizer.step` both."""

    id = "step_twice"
    text = "the optimizer takes every step twice"

    def of(self, subject: TrainingSubject) -> Iterator[Variant]:
        """All steps."""
        yield subject.trained("", _loops().stepping(lambda number: 2))


@register
class TrainingRate(TrainingHypothesis):
    """A rate scaled with the batch once more, a scheduler whose value never arrives."""

    id = "training_rate"
    text = "the optimizer moves at another learning rate"
    rank = 1

    def of(self, subject: TrainingSubject) -> Iterator[Variant]:
        """As a curve shows that is the reference's by a factor throughout; else usual factors and the best one."""
        for name, factor in _factors(subject):
            around = _loops().stepping(_every_step, factor)
            # What the loop says of its rate stays; what the optimizer is seen to have moves along.
            for finish in (_scaling(name, factor), None):
                values = {"around": around, "finish": finish}
                yield Replaced(f"{factor:.6g} times, as {name} shows", subject, values)

        trained = [name for name in subject.reference if name.startswith(WEIGHT_NORM)]
        if len(subject.first_to_part) < len(trained) / 2:
            return  # another rate moves nearly all parameters otherwise, from the first step on

        def hidden(factor: float) -> Variant:
            return subject.trained(f"{factor:.6g} times, which no curve shows", _loops().stepping(_every_step, factor))

        yield from (hidden(factor) for factor in (10.0, 0.1, 2.0, 0.5))
        fitting = _fitting_factor(subject, hidden)
        if fitting is not None:
            yield from (hidden(value) for value in dict.fromkeys((float(f"{fitting:.4g}"), fitting)))


def _fitting_factor(subject: TrainingSubject, make: Callable[[float], Variant]) -> float | None:
    """By the secant method, the factor that gives the port's first value that differs; later ones are chaotic."""
    name = wrong_names(subject)[0]
    reference, port = subject.reference.get(name), subject.port[name]
    if reference is None or reference.shape != port.shape:
        return None
    at = int(np.argmax(np.abs(reference - port) > subject.floors.get(name, 0.0)))
    before, now, left = 1.0, 1.01, float(reference[at] - port[at])
    whole = abs(left)
    for _ in range(_MOST_TRIES):
        with make(now).apply():
            remaining = float(subject.run()[name][at] - port[at])
        if abs(remaining) <= _FITTED * whole:
            return now
        if not np.isfinite(remaining) or remaining == left:
            return None
        before, now, left = now, now - remaining * (now - before) / (remaining - left), remaining
    return None


def _every_step(number: int) -> int:
    return 1


def _factors(subject: TrainingSubject) -> list[tuple[str, float]]:
    """Curves of the port that are the reference's times one number, and that number."""
    found = []
    for name in wrong_names(subject):
        reference, port = subject.reference.get(name), subject.port[name]
        if reference is not None and reference.shape == port.shape and reference.any():
            factor = float(port @ reference / (reference @ reference))
            if distance(factor * reference, port) <= _SAME * root_mean_square(port):
                found.append((name, factor))
    return found


class _Averaging(TrainingHypothesis):
    """Of a model that averages itself over time in training.

    Attributes:
        ways: detail for the text → what stands in for the model's method, given that method.
    """

    ways: ClassVar[Mapping[str, Any]]

    def of(self, subject: TrainingSubject) -> Iterator[Variant]:
        """In each way."""
        for detail, way in self.ways.items():
            yield subject.trained(detail, _averaging(way))


def _averaging(way: Callable[[Any], Any]) -> Around:
    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        name = averaging_method(model)
        if name is None:
            raise ValueError("the model has no moving average")
        with replaced(model, name, way(getattr(model, name))):
            yield

    return around


@register
class TrainingAverageInverted(_Averaging):
    """0.99 given where 0.01 is meant."""

    id = "ema_inverted"
    text = "in training the moving average weighs old and new the other way round (m and 1 - m swapped)"
    difference = "ema_update_idioms"
    ways = types.MappingProxyType({"": lambda update: lambda m: update(1.0 - m)})


@register
class TrainingAverageMoves(_Averaging):
    """The update is left out of the loop, comes twice, or copies."""

    id = "ema_momentum"
    text = "in training the moving average moves otherwise"
    ways = types.MappingProxyType(
        {
            "not at all": lambda update: lambda m: None,
            "twice a step": lambda update: lambda m: (update(m), update(m)),
            "it is a copy": lambda update: lambda m: update(0.0),
        }
    )
