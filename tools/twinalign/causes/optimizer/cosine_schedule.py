"""Schedules of the usual form: a linear warm-up, then a decay along a cosine."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from twinalign.causes.component import enter_rows, fitted
from twinalign.causes.optimizer.schedule import ScheduleSubject, schedule_cause
from twinalign.causes.registry import Variant

_SAME = 1e-9


@dataclasses.dataclass(frozen=True)
class Curve:
    """A warm-up and a cosine.

    Attributes:
        first: value of step 0.
        peak: greatest value, reached when the warm-up ends.
        warmup: steps of the warm-up, 0 for none.
        length: steps from the peak to the end.
        floor: value at the end.
    """

    first: float
    peak: float
    warmup: int
    length: float
    floor: float

    def ramp(self, steps: np.ndarray) -> np.ndarray:
        return self.first + (self.peak - self.first) * steps / max(self.warmup, 1)

    def decay(self, steps: np.ndarray, length: float | None = None, floor: float | None = None) -> np.ndarray:
        end = self.floor if floor is None else floor
        return end + (self.peak - end) * 0.5 * (1.0 + np.cos(np.pi * steps / (length or self.length)))

    def values(self, steps: np.ndarray, ramp: Any = None, after: Any = None) -> np.ndarray:
        ramp = self.ramp(steps) if ramp is None else ramp
        return np.where(steps < self.warmup, ramp, self.decay(steps - self.warmup) if after is None else after)

    @property
    def total(self) -> float:
        return self.warmup + self.length


def curve_of(values: np.ndarray) -> Curve | None:
    """The curve that a sequence is, None where it is none of this form within its first period."""
    scale = float(np.abs(values).max(initial=0.0))
    if len(values) < 4 or not scale:
        return None
    warmup = 0
    if values[1] > values[0]:
        line = values[0] + np.arange(len(values)) * (values[1] - values[0])
        differing = np.flatnonzero(np.abs(values - line) > _SAME * scale)
        warmup = int(differing[0]) - 1 if len(differing) else len(values) - 1
    after = values[warmup:]
    if len(after) < 3 or not after[0] > after[1]:
        return None
    peak, steps = float(after[0]), np.arange(len(after))
    for floor in _floors(after):
        cosine = np.clip(2.0 * (after[1] - floor) / (peak - floor) - 1.0, -1.0, 1.0)
        length = float(np.pi / np.arccos(cosine))
        curve = Curve(float(values[0]), peak, warmup, length, floor)
        within = steps <= max(length, 3.0)
        if np.abs(curve.decay(steps) - after)[within].max() <= 1e-7 * scale:
            return curve
    return None


def _floors(after: np.ndarray) -> Iterator[float]:
    """0, and the one that follows from three points of the cosine."""
    yield 0.0
    first, second = after[0] - after[1], after[0] - after[2]
    cosine = second / (2.0 * first) - 1.0
    if -1.0 <= cosine < 1.0:
        yield float(after[0] - 2.0 * first / (1.0 - cosine))


Find = Callable[[ScheduleSubject, Curve], Iterable[Variant]]


def curve_cause(with_warmup: bool = False, **facts: Any) -> Callable[[Find], Find]:
    """Decorator of causes in a warm-up or a cosine; they are given the curve, and not asked where there is none."""

    def entered(find: Find) -> Find:
        @functools.wraps(find)
        def find_in(subject: ScheduleSubject) -> Iterable[Variant]:
            curve = curve_of(subject.sequence)
            return find(subject, curve) if curve and (curve.warmup or not with_warmup) else ()

        schedule_cause(**facts)(find_in)
        return find

    return entered


@curve_cause(with_warmup=True, difference="lr_linear_warmup")
def warmup_length(subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
    """The warm-up has another length."""
    for other in dict.fromkeys([curve.warmup + d for d in (1, -1, 2, -2, 3, -3)] + [2 * curve.warmup]):
        for length in (curve.total - other, curve.length):  # the end of the run where it was, or moved
            if other > 0 and length > 0:
                longer = dataclasses.replace(curve, warmup=other, length=length)
                yield subject.variant(f"{other} steps for {curve.warmup}", sequenced=longer.values(subject.steps))


@curve_cause(with_warmup=True, difference="lr_linear_warmup")
def warmup_start(subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
    """The warm-up starts from another value."""

    def variant(first: float) -> Variant:
        other = dataclasses.replace(curve, first=first)
        return subject.variant(f"{first:.6g} for {curve.first:.6g}", sequenced=other.values(subject.steps))

    # torch's LinearLR begins at a third.
    yield from map(variant, (0.0, curve.peak / 3, curve.peak / 10, curve.peak / 100, curve.peak / 1000, 1e-6))
    yield from fitted(subject, variant, curve.peak / 2)


@curve_cause()
def cosine_length(subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
    """The decay has another length."""

    def variant(length: float) -> Variant:
        other = dataclasses.replace(curve, length=length)
        return subject.variant(f"{length:.6g} steps for {curve.length:.6g}", sequenced=other.values(subject.steps))

    candidates = [curve.length + d for d in (-1, 1, -2, 2)] + [curve.total, curve.length * 2, curve.length / 2]
    yield from (variant(length) for length in candidates if length > 0)
    yield from fitted(subject, variant, curve.length * 1.05)
    yield from fitted(subject, variant, curve.length * 0.95)


def _polynomial(power: float, progress: np.ndarray) -> np.ndarray:
    left: np.ndarray = np.maximum(1.0 - progress, 0.0) ** power
    return left


_SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda p: 1.0 - p,
    "linear, then 0": lambda p: np.maximum(1.0 - p, 0.0),
    **{f"polynomial of power {power:g}": functools.partial(_polynomial, power) for power in (0.9, 2.0, 0.5)},
    "a quarter of a period": lambda p: np.cos(0.5 * np.pi * p),
    "a whole period": lambda p: 0.5 * (1.0 + np.cos(2.0 * np.pi * p)),
    "the cosine not halved": lambda p: 1.0 + np.cos(np.pi * p),
}
"""The share of the way from the peak to the end that is left, by the share of the steps that are taken."""


@curve_cause(difference="lr_polynomial_end")
def schedule_floor(subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
    """The decay ends at another value."""

    def variant(floor: float) -> Variant:
        other = dataclasses.replace(curve, floor=floor)
        return subject.variant(f"{floor:.6g} for {curve.floor:.6g}", sequenced=other.values(subject.steps))

    # paddle's PolynomialDecay ends at 1e-4 where torch's PolynomialLR ends at 0.
    yield from map(variant, (0.0, 1e-4, 1e-5, 1e-6, curve.peak / 100, curve.peak / 1000, curve.peak / 10))
    yield from fitted(subject, variant, curve.floor + 0.1 * (curve.peak - curve.floor))


def _shaped(share: Callable[[np.ndarray], np.ndarray], steps: np.ndarray, curve: Curve) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        left = share((steps - curve.warmup) / curve.length)
        decayed = np.nan_to_num(curve.floor + (curve.peak - curve.floor) * left)
    return curve.values(steps, after=decayed)


def _curves(
    pairs: Sequence[tuple[str, Callable[[np.ndarray, Curve], np.ndarray]]], with_warmup: bool = False
) -> Callable[[ScheduleSubject], list[tuple[str, np.ndarray]]]:
    """Other values, made of the steps and of the curve that the reference's are; none where they are no such curve."""

    def others(subject: ScheduleSubject) -> list[tuple[str, np.ndarray]]:
        curve = curve_of(subject.sequence)
        if curve is None or (with_warmup and not curve.warmup):
            return []
        return [(detail, values(subject.steps, curve)) for detail, values in pairs]

    return others


enter_rows("optimizer", ScheduleSubject, "sequenced", (
    ("warmup_missing", "there is no warm-up", {}, _curves([
        ("the cosine spans the whole run", lambda n, c: c.decay(n, c.total)),
        ("the cosine begins at once", lambda n, c: c.decay(n)),
        ("the peak is held instead", lambda n, c: c.decay(np.maximum(n - c.warmup, 0)))], with_warmup=True)),
    ("warmup_counts_from_one", "the warm-up counts its steps from 1 on one side and from 0 on the other",
     {"difference": "lr_linear_warmup"}, _curves([
         ("", lambda n, c: c.values(n, c.peak / c.warmup * (n + 1))),
         ("", lambda n, c: c.values(n, c.peak / (c.warmup + 1) * (n + 1))),
         ("", lambda n, c: c.values(n, c.peak / c.warmup * n)),
         ("", lambda n, c: np.where(n <= c.warmup, c.peak / (c.warmup + 1) * n, c.decay(n - c.warmup)))],
         with_warmup=True)),
    ("cosine_over_whole_run", "the cosine counts from the first step, not from the end of the warm-up",
     {"difference": "lr_linear_warmup"}, _curves([
         ("", lambda n, c: c.values(n, after=c.decay(n, c.total))),
         ("", lambda n, c: c.values(n, after=c.decay(n, c.length)))], with_warmup=True)),
    ("cosine_missing", "the value does not decay: it stays at its peak", {},
     _curves([("", lambda n, c: c.values(n, after=c.peak))])),
    ("schedule_shape", "the decay does not have the shape of half a cosine", {},
     _curves([(detail, functools.partial(_shaped, share)) for detail, share in _SHAPES.items()])),
    ("schedule_after_end", "the schedule continues differently after its end", {"difference": "lr_cosine_eta_min_past"},
     _curves([("it stays there", lambda n, c: c.values(n, after=c.decay(np.minimum(n - c.warmup, c.length)))),
              ("it restarts", lambda n, c: c.values(n, after=c.decay(np.mod(n - c.warmup, c.length))))])),
))  # fmt: skip
