"""Are the outcomes of two trainings equivalent? This must be shown; not finding a difference is not enough.

Two one-sided tests (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15(6), 1987): with K seeds, each of which gives both
sides the same initial weights and the same batches, the mean of the K differences is equivalent to zero if Student's t
at 5% rejects both hypotheses, that it is at most -margin and that it is at least +margin. This is the case if its 90%
interval lies within the margin.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from twinalign.errors import InputError
from twinalign.recorder.run_settings import DEFAULT_MARGIN
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, JsonFields

LEVEL = 0.05
POWER = 0.8
MOST_SEEDS = 10_000


@dataclasses.dataclass(frozen=True)
class Equivalence(JsonFields):
    """The evidence from the outcomes of K seeds."""

    name: str
    verdict: str
    """Aligned if equivalent, diverged if the interval lies outside of the margin, else inconclusive."""
    reason: str
    margin: float
    """In the unit of the outcome."""
    reference: tuple[float, ...]
    port: tuple[float, ...]
    mean: float
    """Mean of the differences, port minus reference."""
    deviation: float
    interval: tuple[float, float]
    """90% interval of the mean difference."""
    p_value: float
    """The greater of the two tests."""
    seeds_needed: int | None
    """Seeds that would be needed if the scatter stays the same."""


def judge_equivalence(
    name: str, reference: Sequence[float], port: Sequence[float], margin: float = DEFAULT_MARGIN
) -> Equivalence:
    """Judge the outcomes of the same K seeds on both sides.

    A difference of the means up to `margin`, in the outcomes' unit, counts as none.

    Raises:
        InputError: fewer than two seeds, or a margin that is not positive.
    """
    if len(reference) != len(port) or len(reference) < 2:
        raise InputError(
            f"{name}: equivalence needs two seeds or more on both sides, got {len(reference)}; use --seeds"
        )
    if not margin > 0:
        raise InputError(f"--margin {margin:g}: must be above 0, in points")
    ours, theirs = (np.asarray(values, dtype=np.float64) for values in (reference, port))
    count, difference = len(ours), theirs - ours
    mean, deviation = float(difference.mean()), float(difference.std(ddof=1))
    error = deviation / math.sqrt(count)
    half = student_quantile(1 - LEVEL, count - 1) * error
    distance = margin - abs(mean)
    p_value = 1 - student_cdf(distance / error, count - 1) if error else (0.0 if distance > 0 else 1.0)
    if distance > half or (error == 0 and distance > 0):
        verdict = ALIGNED
    elif abs(mean) - half > margin:
        verdict = DIVERGED
    else:
        verdict = INCONCLUSIVE
    needed = seeds_needed(deviation, margin)
    interval = (mean - half, mean + half)
    reason = _reason(verdict, count, margin, (mean, interval), (ours, theirs), needed)
    values = (tuple(ours.tolist()), tuple(theirs.tolist()))
    return Equivalence(name, verdict, reason, margin, *values, mean, deviation, interval, p_value, needed)


def _reason(
    verdict: str,
    count: int,
    margin: float,
    found: tuple[float, tuple[float, float]],
    outcomes: tuple[np.ndarray, np.ndarray],
    needed: int | None,
) -> str:
    mean, interval = found
    bands = " against ".join(f"{side.mean():.2f} ± {side.std(ddof=1):.2f}" for side in outcomes)
    said = {
        ALIGNED: f"equivalent within {margin:g} points",
        DIVERGED: f"further apart than {margin:g} points",
        INCONCLUSIVE: f"equivalence within {margin:g} points is not shown",
    }[verdict]
    text = f"{said}: {bands}, mean difference {mean:+.2f}, 90% interval {interval[0]:+.2f} to {interval[1]:+.2f}"
    text += f", {count} seeds"
    if verdict == INCONCLUSIVE:
        enough = f"about {needed} seeds" if needed else f"more than {MOST_SEEDS} seeds"
        text += f"; with this scatter it takes {enough} to show it, or a wider --margin"
    return text


def seeds_needed(deviation: float, margin: float) -> int | None:
    """Seeds that show equivalence four times in five if there is no difference; None if more than `MOST_SEEDS`.

    The smallest K with (t(0.95, K-1) + t(0.9, K-1)) deviation / sqrt(K) <= margin: 5% on each side, and a tenth missed
    on each side.
    """
    if deviation == 0:
        return 2
    missed = (1 - POWER) / 2
    low, high = 2, MOST_SEEDS

    def enough(count: int) -> bool:
        factor = student_quantile(1 - LEVEL, count - 1) + student_quantile(1 - missed, count - 1)
        return factor * deviation / math.sqrt(count) <= margin

    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def student_cdf(value: float, freedom: int) -> float:
    """P(T <= value) of Student's t, by the regularised incomplete beta function (DLMF 8.17)."""
    if value == 0:
        return 0.5
    if not math.isfinite(value):
        return 1.0 if value > 0 else 0.0
    tail = 0.5 * _incomplete_beta(freedom / (freedom + value * value), freedom / 2, 0.5)
    return 1 - tail if value > 0 else tail


@functools.lru_cache(maxsize=256)
def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t, by bisection between -10 000 and 10 000."""
    low, high = -1e4, 1e4
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) by its continued fraction (DLMF 8.17.22), evaluated from the front (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    tiny = 1e-300
    c, d = 1.0, 1.0 / ((1 - (a + b) * x / (a + 1)) or tiny)
    fraction = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return front * fraction
