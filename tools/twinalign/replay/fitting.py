"""The number with which a replay comes nearest to what is to be reproduced."""

import math
from collections.abc import Callable

import numpy as np

_STEPS = 12


def fitting_number(residual: Callable[[float], np.ndarray], start: float, patience: int = _STEPS) -> float | None:
    """The number that leaves least (Gauss-Newton from `start`); None if the residual cannot be computed on the way.

    Steps that do not halve what is left may be the way to a number that does; after more than `patience` of them in a
    row, the last number is returned.
    """
    value, least, in_vain = start, math.inf, 0
    for _ in range(_STEPS):
        step = 1e-4 * abs(value) or 1e-6
        try:
            left = residual(value)
            slope = (residual(value + step) - left) / step
        except Exception:  # what is replayed does not run with this number
            return None
        size = float(slope @ slope)
        if not size or not np.isfinite(size):
            return None
        change = -float(slope @ left) / size
        value += change
        remaining = float(np.linalg.norm(left))
        in_vain = 0 if remaining < 0.5 * least else in_vain + 1
        least = min(least, remaining)
        if in_vain > patience or abs(change) <= 1e-13 * abs(value):
            break
    return value


_MOST_TRIES, _FITTED = 12, 1e-8


def factor_without(left: Callable[[float], float], whole: float) -> float | None:
    """The factor, near one, that leaves nothing (secant method); `left` tells what a factor leaves, one leaves all."""
    before, now, last = 1.0, 1.01, whole
    for _ in range(_MOST_TRIES):
        remaining = left(now)
        if abs(remaining) <= _FITTED * abs(whole):
            return now
        if not np.isfinite(remaining) or remaining == last:
            return None
        before, now, last = now, now - remaining * (now - before) / (remaining - last), remaining
    return None
