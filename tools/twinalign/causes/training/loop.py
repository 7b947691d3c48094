"""Causes in the training loop: what it records, clears, steps and averages."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.case.averaging import averaging_method
from twinalign.causes.component import wrong_names
from twinalign.causes.registry import Variant
from twinalign.causes.training.subject import TrainingSubject, train_cause
from twinalign.files.curve_names import WEIGHT_NORM
from twinalign.patching import Around, replaced
from twinalign.replay.training import Curves
from twinalign.verdict.array_difference import distance, root_mean_square

_MOST_TRIES, _FITTED = 12, 1e-8
_SAME = 1e-6
"""A curve is a multiple of another if at most this relative difference is left; the proof then decides."""


def _loops() -> Any:
    from twinalign.backends.torch.reference_only import changed_training

    return changed_training


@train_cause()
def curve_scaled(subject: TrainingSubject) -> Iterator[Variant]:
    """A curve is recorded in another unit, while the training is the same."""
    for name, factor in _factors(subject):
        yield subject.variant(f"{name} times {factor:.6g}", finish=_scaling(name, factor))


def _scaling(name: str, factor: float) -> Callable[[Curves], Curves]:
    return lambda curves: {**curves, name: curves[name] * factor}


@train_cause()
def evaluation_mode(subject: TrainingSubject) -> Iterator[Variant]:
    """The training runs in evaluation mode: batch norm and dropout do not train."""
    yield subject.variant("", around=_loops().evaluating)


@train_cause(difference="grad_accumulation")
def gradients_accumulate(subject: TrainingSubject) -> Iterator[Variant]:
    """Gradients are not cleared between steps, and add up."""
    yield subject.variant("", around=_loops().gradients_kept)


@train_cause()
def step_skipped(subject: TrainingSubject) -> Iterator[Variant]:
    """The optimizer leaves steps out."""
    for detail, period, taken in (
        ("every second one", 2, (0,)),
        ("the first of two", 2, (1,)),
        ("two of three", 3, (0,)),
        ("the first two of three", 3, (2,)),
        ("every third one", 3, (0, 1)),
        ("all of them", 1, ()),
    ):
        yield subject.variant(detail, around=_loops().stepping(lambda number, p=period, t=taken: int(number % p in t)))


@train_cause()
def step_twice(subject: TrainingSubject) -> Iterator[Variant]:
    """The optimizer takes every step twice."""
    yield subject.variant("", around=_loops().stepping(lambda number: 2))


@train_cause(rank=1)
def training_rate(subject: TrainingSubject) -> Iterator[Variant]:
    """The optimizer uses another learning rate."""
    for name, factor in _factors(subject):
        around = _loops().stepping(lambda number: 1, factor)
        # The loop reports its own rate unchanged; the optimizer's recorded rate may change.
        for finish in (_scaling(name, factor), None):
            yield subject.variant(f"{factor:.6g} times, as {name} shows", around=around, finish=finish)

    trained = [name for name in subject.reference if name.startswith(WEIGHT_NORM)]
    if len(subject.first_to_part) < len(trained) / 2:
        return  # another rate updates nearly all parameters differently, from the first step on

    def hidden(factor: float) -> Variant:
        around = _loops().stepping(lambda number: 1, factor)
        return subject.variant(f"{factor:.6g} times, which no curve shows", around=around)

    yield from (hidden(factor) for factor in (10.0, 0.1, 2.0, 0.5))
    fitting = _fitting_factor(subject, hidden)
    if fitting is not None:
        yield from (hidden(value) for value in dict.fromkeys((float(f"{fitting:.4g}"), fitting)))


def _fitting_factor(subject: TrainingSubject, make: Callable[[float], Variant]) -> float | None:
    """The factor that gives the first differing value of the port (secant method); later values are chaotic."""
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


def _factors(subject: TrainingSubject) -> list[tuple[str, float]]:
    """Curves of the port that are a multiple of the reference's, and the factor."""
    found = []
    for name in wrong_names(subject):
        reference, port = subject.reference.get(name), subject.port[name]
        if reference is not None and reference.shape == port.shape and reference.any():
            factor = float(port @ reference / (reference @ reference))
            if distance(factor * reference, port) <= _SAME * root_mean_square(port):
                found.append((name, factor))
    return found


def _averaging(way: Callable[[Any], Any]) -> Around:
    return _averaging_of_model(lambda model, update: way(update))


def _averaging_of_model(way: Callable[[Any, Any], Any]) -> Around:
    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        name = averaging_method(model)
        if name is None:
            raise ValueError("the model has no moving average")
        with replaced(model, name, way(model, getattr(model, name))):
            yield

    return around


@train_cause(difference="ema_update_idioms")
def ema_inverted(subject: TrainingSubject) -> Iterator[Variant]:
    """In training the moving average weighs old and new the other way round (m and 1 - m swapped)."""
    yield subject.variant("", around=_averaging(lambda update: lambda m: update(1.0 - m)))


@train_cause()
def ema_momentum(subject: TrainingSubject) -> Iterator[Variant]:
    """In training the moving average is updated differently."""
    yield subject.variant("not at all", around=_averaging(lambda update: lambda m: None))
    yield subject.variant("twice a step", around=_averaging(lambda update: lambda m: (update(m), update(m))))
    yield subject.variant("it is a copy", around=_averaging(lambda update: lambda m: update(0.0)))


@train_cause()
def ema_first_copied(subject: TrainingSubject) -> Iterator[Variant]:
    """In training the first update of the moving average copies, where the reference's averages."""

    def copied(update: Any) -> Any:
        later: list[float] = []

        def first(m: float) -> Any:
            later.append(m)
            return update(m if len(later) > 1 else 0.0)

        return first

    yield subject.variant("", around=_averaging(copied))


@train_cause(difference="bn_stats_are_parameters")
def ema_buffers(subject: TrainingSubject) -> Iterator[Variant]:
    """In training the moving average covers the running statistics as well."""
    # Running statistics are parameters in paddle, so a loop over `parameters()` moves them too.
    yield subject.variant("", around=_averaging_of_model(_loops().averaging_buffers))
