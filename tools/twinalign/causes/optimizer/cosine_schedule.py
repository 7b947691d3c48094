"""Schedules of the usual form: a linear warm-up, then a decay along a cosine."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from twinalign.causes.component import Others, Pairs, enter_rows, fitted
from twinalign.causes.optimizer.schedule import ScheduleSubject
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


def _curves(
    others: Callable[[ScheduleSubject, Curve], Others], with_warmup: bool = False
) -> Callable[[ScheduleSubject], Others]:
    """What is other where the reference's values are such a curve, and have a warm-up if that is asked."""

    def of(subject: ScheduleSubject) -> Others:
        curve = curve_of(subject.sequence)
        return others(subject, curve) if curve and (curve.warmup or not with_warmup) else ()

    return of


def _field(
    name: str, values: Callable[[Curve], Iterable[float]], starts: Callable[[Curve], Iterable[float]], unit: str = ""
) -> Callable[[ScheduleSubject, Curve], Others]:
    """Other values of a field of the curve: likely ones, then those that fit the port best, from each start."""

    def others(subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        def variant(value: float) -> Variant:
            changed: dict[str, Any] = {name: value}
            other = dataclasses.replace(curve, **changed)
            detail = f"{value:.6g}{unit} for {getattr(curve, name):.6g}"
            return subject.variant(detail, sequenced=other.values(subject.steps))

        yield from map(variant, values(curve))
        for start in starts(curve):
            yield from fitted(subject, variant, start)

    return others


def _longer_warmups(subject: ScheduleSubject, curve: Curve) -> Pairs:
    for other in dict.fromkeys([curve.warmup + d for d in (1, -1, 2, -2, 3, -3)] + [2 * curve.warmup]):
        for length in (curve.total - other, curve.length):  # the end of the run where it was, or moved
            if other > 0 and length > 0:
                longer = dataclasses.replace(curve, warmup=other, length=length)
                yield f"{other} steps for {curve.warmup}", longer.values(subject.steps)


_SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda p: 1.0 - p,
    "linear, then 0": lambda p: np.maximum(1.0 - p, 0.0),
    **{
        f"polynomial of power {power:g}": functools.partial(lambda of, p: np.maximum(1.0 - p, 0.0) ** of, power)
        for power in (0.9, 2.0, 0.5)
    },
    "a quarter of a period": lambda p: np.cos(0.5 * np.pi * p),
    "a whole period": lambda p: 0.5 * (1.0 + np.cos(2.0 * np.pi * p)),
    "the cosine not halved": lambda p: 1.0 + np.cos(np.pi * p),
}
"""The share of the way from the peak to the end that is left, by the share of the steps that are taken."""


def _shaped(subject: ScheduleSubject, curve: Curve) -> Pairs:
    for detail, share in _SHAPES.items():
        with np.errstate(invalid="ignore"):
            left = share((subject.steps - curve.warmup) / curve.length)
            decayed = np.nan_to_num(curve.floor + (curve.peak - curve.floor) * left)
        yield detail, curve.values(subject.steps, after=decayed)


def _counted_from_one(subject: ScheduleSubject, curve: Curve) -> Pairs:
    steps, warm = subject.steps, curve.warmup
    step, shorter = curve.peak / warm, curve.peak / (warm + 1)
    for ramp in (step * (steps + 1), shorter * (steps + 1), step * steps):
        yield "", curve.values(steps, ramp)
    yield "", np.where(steps <= warm, shorter * steps, curve.decay(steps - warm))


def _after_end(subject: ScheduleSubject, curve: Curve) -> Pairs:
    since = subject.steps - curve.warmup
    yield "it stays there", curve.values(subject.steps, after=curve.decay(np.minimum(since, curve.length)))
    yield "it restarts", curve.values(subject.steps, after=curve.decay(np.mod(since, curve.length)))


_WARMUP = {"difference": "lr_linear_warmup"}
enter_rows("optimizer", ScheduleSubject, "sequenced", (
    ("warmup_missing", "there is no warm-up", {}, _curves(lambda s, c: {
        "the cosine spans the whole run": c.decay(s.steps, c.total),
        "the cosine begins at once": c.decay(s.steps),
        "the peak is held instead": c.decay(np.maximum(s.steps - c.warmup, 0))}, with_warmup=True)),
    ("warmup_length", "the warm-up has another length", _WARMUP, _curves(_longer_warmups, with_warmup=True)),
    ("warmup_counts_from_one", "the warm-up counts its steps from 1 on one side and from 0 on the other", _WARMUP,
     _curves(_counted_from_one, with_warmup=True)),
    # torch's LinearLR begins at a third.
    ("warmup_start", "the warm-up starts from another value", _WARMUP,
     _curves(_field("first", lambda c: (0.0, *(c.peak / n for n in (3, 10, 100, 1000)), 1e-6), lambda c: (c.peak / 2,)),
             with_warmup=True)),
    ("cosine_over_whole_run", "the cosine counts from the first step, not from the end of the warm-up", _WARMUP,
     _curves(lambda s, c: [("", c.values(s.steps, after=c.decay(s.steps, length))) for length in (c.total, c.length)],
             with_warmup=True)),
    ("cosine_length", "the decay has another length", {},
     _curves(_field("length", lambda c: [n for n in (*(c.length + d for d in (-1, 1, -2, 2)), c.total, c.length * 2,
                                                     c.length / 2) if n > 0],
                    lambda c: (c.length * 1.05, c.length * 0.95), " steps"))),
    ("cosine_missing", "the value does not decay: it stays at its peak", {},
     _curves(lambda s, c: {"": c.values(s.steps, after=c.peak)})),
    ("schedule_shape", "the decay does not have the shape of half a cosine", {}, _curves(_shaped)),
    # paddle's PolynomialDecay ends at 1e-4 where torch's PolynomialLR ends at 0.
    ("schedule_floor", "the decay ends at another value", {"difference": "lr_polynomial_end"},
     _curves(_field("floor", lambda c: (0.0, 1e-4, 1e-5, 1e-6, *(c.peak / n for n in (100, 1000, 10))),
                    lambda c: (c.floor + 0.1 * (c.peak - c.floor),)))),
    ("schedule_after_end", "the schedule continues differently after its end", {"difference": "lr_cosine_eta_min_past"},
     _curves(_after_end)),
))  # fmt: skip
