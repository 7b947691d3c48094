"""When a cause of a wrong layer is proven: its values are the port's, down to what rounding leaves open."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from twinalign.causes.proving import REDUCTION_WITH_CONSTANTS, SHARE
from twinalign.verdict.array_difference import apart, greatest_finite, share_lacking

ROUNDING = 1e-11
"""Relative to the values: what float64 arithmetic in another order may leave."""
CONSTANTS = 1e-7
"""Relative to the values: paddle's kernels hold attributes such as epsilon or 1/9 in float32. Only causes with such a
number are excused by it: to any other, a wrong number of 1e-5 would be as good as none."""
CANCELLED = 1e-13
"""Relative to the greatest tensor: gradients that cancel out (a bias before a batch norm) are rounding alone."""
HIDES = 1e30
"""No less is the least number of a type, with which masks hide: nobody computes such numbers, and none is rounded."""

_SAMPLED = 4096
"""Elements by which `Target.is_far` judges."""


@dataclasses.dataclass(frozen=True)
class Proof:
    """How close a cause comes.

    Attributes:
        confirmed: whether the port is reproduced.
        exact: whether it is so without the excuse of constants kept in float32.
        before: greatest difference between port and reference, relative to the size of the values.
        after: greatest difference that is left between the port and the wrong reference, relative as `before`.
        distance: root mean square over all tensors of what remains; for ranking.
        wrong: share of the port's values other than 0 that a tensor lacks, on average over the tensors; for ranking.
    """

    confirmed: bool
    exact: bool
    before: float
    after: float
    distance: float
    wrong: float


@dataclasses.dataclass(frozen=True)
class _Pair:
    port: np.ndarray
    reference: np.ndarray | None
    scale: float
    difference: float


class Target:
    """The port's values of one unit, and the reference's beside them."""

    def __init__(self, port: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> None:
        """Keep what is to be reproduced; a gradient that one side lacks counts as zero there."""
        arrays = {name: (_real(port.get(name)), _real(reference.get(name))) for name in {**port, **reference}}
        overall = 0.0
        self._pairs: dict[str, _Pair] = {}
        for name, (ours, theirs) in arrays.items():
            if name.startswith("gradient."):
                ours = np.zeros_like(theirs) if ours is None and theirs is not None else ours
                theirs = np.zeros_like(ours) if theirs is None and ours is not None else theirs
            mine, other = (0.0 if array is None else greatest_finite(array) for array in (ours, theirs))
            # Beside a number with which a mask hides, any other would be as good as the port's; but for rounding.
            hidden = (CANCELLED * other if other < HIDES else 0.0) < mine < SHARE * other
            scale = mine if hidden else max(mine, other)
            overall = max(overall, scale if scale < HIDES else 0.0)  # no value is computed from what hides others
            if ours is None:
                continue
            scale = scale or float(not np.isfinite(ours).all())  # a mask of zeros and infinities
            differs = apart(ours, theirs, scale)[0]
            self._pairs[name] = _Pair(ours, theirs, scale, min(differs, scale) if hidden else differs)
        self._floor = CANCELLED * overall
        self.before = max((pair.difference / pair.scale for pair in self._pairs.values() if pair.scale), default=0.0)

    def wrong(self) -> list[str]:
        """Names of the tensors in which the port differs beyond rounding, the worst first."""
        wrong = [n for n, pair in self._pairs.items() if pair.difference > ROUNDING * pair.scale + self._floor]
        return sorted(wrong, key=lambda name: -self._pairs[name].difference / self._pairs[name].scale)

    def reproduces_reference(self, values: Mapping[str, np.ndarray]) -> bool:
        """Whether `values`, of the unmodified reference, are the recorded ones, so that a re-run can prove anything."""
        for name, pair in self._pairs.items():
            if pair.reference is None:
                continue
            value = _real(values.get(name))
            value = np.zeros_like(pair.reference) if value is None and name.startswith("gradient.") else value
            remaining, _ = apart(pair.reference, value, pair.scale)
            if (
                remaining
                > max(1e-9 * max(pair.scale, greatest_finite(pair.reference)), SHARE * pair.difference) + self._floor
            ):
                return False
        return True

    def prove(self, values: Mapping[str, np.ndarray], constants: float = 0.0) -> Proof:
        """Judge what a cause gives: every tensor must be the port's, also those that do not differ; constants
        kept in float32 may leave the share `constants` of the values."""
        confirmed, exact, after, squares, lacking = True, True, 0.0, 0.0, 0.0
        for name, pair in self._pairs.items():
            value = _real(values.get(name))
            if value is None and name.startswith("gradient."):
                value = np.zeros_like(pair.port)
            if pair.reference is None and value is None:
                continue
            remaining, square = apart(pair.port, value, pair.scale)
            allowed = self._allowed(pair, 0.0)
            exact = exact and remaining <= allowed
            confirmed = confirmed and remaining <= self._allowed(pair, constants)
            after = max(after, min(remaining / pair.scale, 10.0) if pair.scale else 0.0)
            squares += square
            lacking += share_lacking(pair.port, value, allowed) / len(self._pairs)
        differs = self.before > 0.0
        return Proof(confirmed and differs, exact and differs, self.before, after, math.sqrt(squares), lacking)

    def is_far(self, values: Mapping[str, np.ndarray], constants: float, almost: float) -> bool:
        """Whether a sample shows that `prove` would confirm nothing, and leave more than the share `almost`."""
        for name, pair in self._pairs.items():
            value = _real(values.get(name))
            if value is None or value.shape != pair.port.shape or not pair.scale:
                continue
            step = max(1, value.size // _SAMPLED)
            with np.errstate(invalid="ignore", over="ignore"):
                least = float(np.abs(pair.port.reshape(-1)[::step] - value.reshape(-1)[::step]).max(initial=0.0))
            if np.isfinite(least) and least > max(self._allowed(pair, constants), almost * self.before * pair.scale):
                return True
        return False

    def _allowed(self, pair: _Pair, constants: float) -> float:
        difference = max(pair.difference, self.before * pair.scale)
        excused = min(constants * pair.scale, REDUCTION_WITH_CONSTANTS * difference)
        return max(SHARE * pair.difference, ROUNDING * pair.scale, excused) + self._floor


def _real(array: np.ndarray | None) -> np.ndarray | None:
    if array is None:
        return None
    array = np.asarray(array)
    if np.iscomplexobj(array):
        array = np.stack([array.real, array.imag])
    return array.astype(np.float64, copy=False)
