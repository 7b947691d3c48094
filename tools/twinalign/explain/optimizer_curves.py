"""Hypotheses about schedules of the usual form: a linear warm-up, then a decay along a cosine."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

import numpy as np

from twinalign.explain.component import fitted
from twinalign.explain.optimizer_schedule import ScheduleHypothesis, ScheduleSubject
from twinalign.explain.registry import Variant, register

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
        """The warm-up's line."""
        return self.first + (self.peak - self.first) * steps / max(self.warmup, 1)

    def decay(self, steps: np.ndarray, length: float | None = None, floor: float | None = None) -> np.ndarray:
        """The cosine, from its peak on."""
        end = self.floor if floor is None else floor
        return end + (self.peak - end) * 0.5 * (1.0 + np.cos(np.pi * steps / (length or self.length)))

    def values(self, steps: np.ndarray) -> np.ndarray:
        """The whole schedule."""
        return np.where(steps < self.warmup, self.ramp(steps), self.decay(steps - self.warmup))

    @property
    def total(self) -> float:
        """Steps from the first to the end."""
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


class CurveHypothesis(ScheduleHypothesis):
    """A hypothesis about a warm-up or a cosine: a subclass defines `curves`."""

    def of(self, subject: ScheduleSubject) -> Iterator[Variant]:
        """None where the reference's values are no such curve."""
        curve = curve_of(subject.sequence)
        if curve is not None:
            yield from self.curves(subject, curve)

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """The ways in which this can hold."""
        raise NotImplementedError


def _made(subject: ScheduleSubject, detail: str, values: Callable[[np.ndarray], np.ndarray]) -> Variant:
    return subject.made(detail, values(subject.steps))


@register
class WarmupMissing(CurveHypothesis):
    """The rate starts at its peak."""

    id = "warmup_missing"
    text = "there is no warm-up"

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """The cosine over the whole run, over its own length, or after a hold."""
        if not curve.warmup:
            return
        yield _made(subject, "the cosine spans the whole run", lambda s: curve.decay(s, curve.total))
        yield _made(subject, "the cosine begins at once", curve.decay)
        yield _made(subject, "the peak is held instead", lambda s: curve.decay(np.maximum(s - curve.warmup, 0)))


@register
class WarmupLength(CurveHypothesis):
    """One step longer, or shorter."""

    id = "warmup_length"
    text = "the warm-up has another length"
    difference = "lr_linear_warmup"

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """By up to three steps or twice, with the end of the run where it was, or moved."""
        if not curve.warmup:
            return
        for other in dict.fromkeys([curve.warmup + d for d in (1, -1, 2, -2, 3, -3)] + [2 * curve.warmup]):
            if other <= 0:
                continue
            for length in (curve.total - other, curve.length):
                if length > 0:
                    longer = dataclasses.replace(curve, warmup=other, length=length)
                    yield _made(subject, f"{other} steps for {curve.warmup}", longer.values)


@register
class WarmupCountsFromOne(CurveHypothesis):
    """(step + 1) / warmup for step / warmup: the first step moves the weights, or does not."""

    id = "warmup_counts_from_one"
    text = "the warm-up counts its steps from 1 on one side and from 0 on the other"
    difference = "lr_linear_warmup"

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """From 1 for 0, with as many steps or one more; from 0 for 1."""
        if not curve.warmup:
            return
        first = curve.peak / curve.warmup
        warm = curve.warmup
        yield _made(subject, "", lambda s: np.where(s < warm, first * (s + 1), curve.decay(s - warm)))
        spread = curve.peak / (warm + 1)
        yield _made(subject, "", lambda s: np.where(s < warm, spread * (s + 1), curve.decay(s - warm)))
        yield _made(subject, "", lambda s: np.where(s < warm, first * s, curve.decay(s - warm)))
        late = curve.peak / (warm + 1)
        yield _made(subject, "", lambda s: np.where(s <= warm, late * s, curve.decay(s - warm)))


@register
class WarmupStart(CurveHypothesis):
    """torch's LinearLR begins at a third, paddle's LinearWarmup at start_lr."""

    id = "warmup_start"
    text = "the warm-up starts from another value"
    difference = "lr_linear_warmup"

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """A third, zero, usual small values, and the one that fits."""
        if not curve.warmup:
            return

        def variant(first: float) -> Variant:
            return _made(subject, f"{first:.6g} for {curve.first:.6g}", dataclasses.replace(curve, first=first).values)

        yield from map(variant, (0.0, curve.peak / 3, curve.peak / 10, curve.peak / 100, curve.peak / 1000, 1e-6))
        yield from fitted(subject, variant, curve.peak / 2)


@register
class CosineOverWholeRun(CurveHypothesis):
    """The steps of the warm-up count for the cosine as well."""

    id = "cosine_over_whole_run"
    text = "the cosine counts from the first step, not from the end of the warm-up"
    difference = "lr_linear_warmup"

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """Over the whole run's length, or its own; as far as the warm-up leaves it."""
        warm = curve.warmup
        if warm:
            for length in (curve.total, curve.length):
                steps = subject.steps
                yield subject.made("", np.where(steps < warm, curve.ramp(steps), curve.decay(steps, length)))


@register
class CosineLength(CurveHypothesis):
    """Ends a step early or late."""

    id = "cosine_length"
    text = "the decay has another length"

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """By a step or two, by the warm-up, and the one that fits."""

        def variant(length: float) -> Variant:
            other = dataclasses.replace(curve, length=length)
            return _made(subject, f"{length:.6g} steps for {curve.length:.6g}", other.values)

        candidates = [curve.length + d for d in (-1, 1, -2, 2)] + [curve.total, curve.length * 2, curve.length / 2]
        yield from (variant(length) for length in candidates if length > 0)
        yield from fitted(subject, variant, curve.length * 1.05)
        yield from fitted(subject, variant, curve.length * 0.95)


@register
class DecayMissingInSchedule(CurveHypothesis):
    """Warm-up, then nothing."""

    id = "cosine_missing"
    text = "the value does not decay: it stays at its peak"

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """After the warm-up."""
        yield _made(subject, "", lambda s: np.where(s < curve.warmup, curve.ramp(s), curve.peak))


def _polynomial(power: float, progress: np.ndarray) -> np.ndarray:
    left: np.ndarray = np.maximum(1.0 - progress, 0.0) ** power
    return left


@register
class DecayShape(CurveHypothesis):
    """Linear for cosine, a quarter of a period for half of one."""

    id = "schedule_shape"
    text = "the decay has another shape than half a cosine"

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """Linear, polynomial, a quarter or a whole period."""

        def shaped(detail: str, share: Callable[[np.ndarray], np.ndarray]) -> Variant:
            def values(s: np.ndarray) -> np.ndarray:
                progress = (s - curve.warmup) / curve.length
                with np.errstate(invalid="ignore"):
                    decayed = curve.floor + (curve.peak - curve.floor) * share(progress)
                return np.where(s < curve.warmup, curve.ramp(s), np.nan_to_num(decayed))

            return _made(subject, detail, values)

        yield shaped("linear", lambda p: 1.0 - p)
        yield shaped("linear, then 0", lambda p: np.maximum(1.0 - p, 0.0))
        for power in (0.9, 2.0, 0.5):
            yield shaped(f"polynomial of power {power:g}", functools.partial(_polynomial, power))
        yield shaped("a quarter of a period", lambda p: np.cos(0.5 * np.pi * p))
        yield shaped("a whole period", lambda p: 0.5 * (1.0 + np.cos(2.0 * np.pi * p)))
        yield shaped("the cosine not halved", lambda p: 1.0 + np.cos(np.pi * p))


@register
class ScheduleFloor(CurveHypothesis):
    """PolynomialDecay ends at 1e-4 where PolynomialLR ends at 0."""

    id = "schedule_floor"
    text = "the decay ends at another value"
    difference = "lr_polynomial_end"

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """0, paddle's default 1e-4, shares of the peak, and the one that fits."""

        def variant(floor: float) -> Variant:
            other = dataclasses.replace(curve, floor=floor)
            return _made(subject, f"{floor:.6g} for {curve.floor:.6g}", other.values)

        yield from map(variant, (0.0, 1e-4, 1e-5, 1e-6, curve.peak / 100, curve.peak / 1000, curve.peak / 10))
        yield from fitted(subject, variant, curve.floor + 0.1 * (curve.peak - curve.floor))


@register
class AfterTheEnd(CurveHypothesis):
    """What comes after the end: torch's recursion rises again."""

    id = "schedule_after_end"
    text = "the schedule goes on otherwise after its end"
    difference = "lr_cosine_eta_min_past"

    def curves(self, subject: ScheduleSubject, curve: Curve) -> Iterator[Variant]:
        """It stays at the end, or starts anew at the peak."""

        def clamped(s: np.ndarray) -> np.ndarray:
            return np.where(s < curve.warmup, curve.ramp(s), curve.decay(np.minimum(s - curve.warmup, curve.length)))

        def restarted(s: np.ndarray) -> np.ndarray:
            return np.where(s < curve.warmup, curve.ramp(s), curve.decay(np.mod(s - curve.warmup, curve.length)))

        yield _made(subject, "it stays there", clamped)
        yield _made(subject, "it restarts", restarted)
