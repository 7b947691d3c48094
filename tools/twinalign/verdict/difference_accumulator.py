"""Gathers every number about how two arrays, or the rows of two blocks, differ, in one pass over them.

Arrays up to `EXACT` elements, and every dtype but float32, are computed in float64; larger float32 arrays in float32
piece by piece, with sums of pieces in float64: RMS, relative errors and cosine then hold to about 1e-6 of themselves,
maxima to a rounding of float32.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from twinalign.verdict.cache_pieces import WORKSPACE, as_type, dots_of_rows, sums_of_rows

EXACT = 1 << 16


@dataclasses.dataclass(slots=True)
class Statistics:
    """How a reproduced array differs from its reference, over elements that are finite on both sides."""

    size: int
    finite: int
    max_abs: float = 0.0
    sum_abs: float = 0.0
    sum_squares: float = 0.0
    max_rel: float = 0.0
    sum_rel: float = 0.0
    sum_squares_rel: float = 0.0
    nonzero: int = 0
    """Elements whose reference is not zero, over which relative errors are taken."""
    dot: float = 0.0
    reference_squares: float = 0.0
    reproduced_squares: float = 0.0
    reference_max: float = 0.0
    mismatched: int = 0
    max_ulp: int | None = None
    sum_ulp: float = 0.0
    worst_position: int | None = None
    worst_index: tuple[int, ...] | None = None
    nonfinite_differ: int = 0
    """Elements that are NaN or infinite on one side and not the same on the other."""
    nonfinite_position: int | None = None
    nonfinite_index: tuple[int, ...] | None = None
    classic_mean: Any = None
    """reprod_log's mean, a numpy scalar, where it came with the others."""

    @property
    def mean_abs(self) -> float:
        return self.sum_abs / self.finite if self.finite else 0.0

    @property
    def rms_abs(self) -> float:
        return math.sqrt(self.sum_squares / self.finite) if self.finite else 0.0

    @property
    def mean_rel(self) -> float:
        return self.sum_rel / self.nonzero if self.nonzero else 0.0

    @property
    def rms_rel(self) -> float:
        return math.sqrt(self.sum_squares_rel / self.nonzero) if self.nonzero else 0.0

    @property
    def mean_ulp(self) -> float | None:
        """Mean number of floating-point numbers between the two."""
        return self.sum_ulp / self.finite if self.max_ulp is not None and self.finite else None

    @property
    def cosine(self) -> float | None:
        """Cosine of the angle between the two as vectors; None where one of them is zero."""
        norm = math.sqrt(self.reference_squares) * math.sqrt(self.reproduced_squares)
        return max(-1.0, min(1.0, self.dot / norm)) if norm else None


class DifferenceAccumulator:
    """Gathers the differences of references (dtype `left`) and reproductions (`right`) of `size` elements each.

    The other arguments are those of `statistics.measure`.
    """

    def __init__(self, left: np.dtype, right: np.dtype, size: int, rtol: float, atol: float, everything: bool) -> None:
        self._size = size
        self._rtol, self._atol = rtol, atol
        self._everything = everything
        self.native = left == np.float32 and right == np.float32 and size > EXACT
        """Whether differences are taken in float32."""
        self._work = np.dtype(np.float32 if self.native else np.float64)
        floating = left.kind == "f" or left.name == "bfloat16"
        self._ulps = everything and floating and left.itemsize <= 8 and left == right

    def started(self) -> Statistics:
        return Statistics(self._size, self._size, max_ulp=0 if self._ulps else None)

    def add(self, found: Sequence[Statistics], left: np.ndarray, right: np.ndarray, start: int) -> np.ndarray:
        """Add one more piece of each array; the caller must ignore floating-point errors.

        Args:
            found: statistics of each array.
            left: a piece of the references, a row each, `[rows, elements]`, contiguous, at most `CHUNK` elements.
            right: the same piece of the reproductions.
            start: where in the arrays the piece begins.

        Returns:
            The sum of each row's absolute differences, NaN if one is not finite.
        """
        if left.dtype.kind in "iub":
            first, second, difference = _integers(left, right)
        else:
            first, second = as_type(left, self._work, "first"), as_type(right, self._work, "second")
            difference = WORKSPACE.take("difference", self._work, left.shape)
            np.abs(np.subtract(first, second, out=difference), out=difference)
        worst_positions = difference.argmax(axis=1)  # a NaN counts as the greatest
        greatest = difference[np.arange(len(difference)), worst_positions]
        finite = np.isfinite(greatest)
        if not finite.all():
            return self._without_odd_rows(found, left, right, start, finite)
        totals = np.add.reduce(difference, axis=1)
        for statistics, total in zip(found, totals.tolist(), strict=True):
            statistics.sum_abs += total
        places = (worst_positions + start).tolist()
        one_sign = self._gather(found, first, second, difference, greatest.tolist(), places)
        if self._ulps:
            _count_ulps(found, left, right, one_sign)
        return totals

    def _without_odd_rows(
        self, found: Sequence[Statistics], left: np.ndarray, right: np.ndarray, start: int, finite: np.ndarray
    ) -> np.ndarray:
        totals = np.full(len(left), np.nan, self._work)
        for row in np.flatnonzero(~finite).tolist():
            self._add_nonfinite(found[row], left[row], right[row], start)
        rows = np.flatnonzero(finite).tolist()
        if rows:
            totals[rows] = self.add([found[row] for row in rows], left[rows], right[rows], start)
        return totals

    def _gather(
        self,
        found: Sequence[Statistics],
        first: np.ndarray,
        second: np.ndarray,
        difference: np.ndarray,
        greatest: list[float],
        worst_positions: list[int],
    ) -> bool:
        """Whether no pair of numbers is known to have two signs."""
        differ = any(greatest)
        squares = dots_of_rows(difference, difference) if differ else [0.0] * len(found)
        for statistics, most, place, square in zip(found, greatest, worst_positions, squares, strict=True):
            if most > statistics.max_abs or statistics.worst_position is None:
                statistics.max_abs, statistics.worst_position = max(most, statistics.max_abs), place
            statistics.sum_squares += square
        if not self._everything and max(greatest) <= self._atol:
            return False
        magnitude = np.abs(first, out=WORKSPACE.take("magnitude", first.dtype, first.shape))
        if not self._everything:
            self._count_mismatches(found, magnitude, difference, greatest)
            return False
        sums = dots_of_rows(first, first), dots_of_rows(first, second), dots_of_rows(second, second)
        extremes = (np.maximum.reduce(magnitude, axis=1).tolist(), np.minimum.reduce(magnitude, axis=1).tolist())
        for row, (statistics, own, product, other, most, least) in enumerate(zip(found, *sums, *extremes, strict=True)):
            statistics.reference_squares += own
            statistics.dot += product
            statistics.reproduced_squares += other
            statistics.reference_max = max(statistics.reference_max, most)
            statistics.nonzero += magnitude.shape[1] if least > 0 else int(np.count_nonzero(magnitude[row]))
        if differ:
            self._count_mismatches(found, magnitude, difference, greatest)
            self._add_relative(found, difference, magnitude, extremes[1])
        # Numbers of two signs are farther apart than either is from zero.
        return all(most < least for most, least in zip(greatest, extremes[1], strict=True))

    def _count_mismatches(
        self, found: Sequence[Statistics], magnitude: np.ndarray, difference: np.ndarray, greatest: list[float]
    ) -> None:
        over = [row for row, most in enumerate(greatest) if most > self._atol]
        if not over:
            return
        allowed = WORKSPACE.take("allowed", magnitude.dtype, magnitude.shape)
        np.multiply(magnitude, self._rtol, out=allowed)
        allowed += self._atol
        flags = np.greater(difference, allowed, out=WORKSPACE.take("flags", np.dtype(bool), difference.shape))
        for row in over:
            found[row].mismatched += int(np.count_nonzero(flags[row]))

    def _add_relative(
        self, found: Sequence[Statistics], difference: np.ndarray, magnitude: np.ndarray, leasts: list[float]
    ) -> None:
        """Relative errors over elements with a nonzero reference; overwrites `magnitude`."""
        with_zeros = [row for row, least in enumerate(leasts) if least == 0]
        for row in with_zeros:
            keep = magnitude[row] > 0
            if keep.any():
                relative = difference[row, keep] / magnitude[row, keep]
                _take_relative(found[row : row + 1], relative[None])
        if len(with_zeros) < len(found):
            relative = np.divide(difference, magnitude, out=magnitude)
            if with_zeros:
                kept = [row for row, least in enumerate(leasts) if least > 0]
                found, relative = [found[row] for row in kept], relative[kept]
            _take_relative(found, relative)

    def _add_nonfinite(self, found: Statistics, left: np.ndarray, right: np.ndarray, start: int) -> None:
        """A piece of one array with NaN, infinities, or a difference beyond float32, in float64."""
        first, second = left.astype(np.float64), right.astype(np.float64)
        finite = np.isfinite(first) & np.isfinite(second)
        found.finite -= int(len(first) - np.count_nonzero(finite))
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        wrong = ~finite & ~same
        if wrong.any():
            found.nonfinite_differ += int(np.count_nonzero(wrong))
            if found.nonfinite_position is None:
                found.nonfinite_position = start + int(wrong.argmax())
        if not finite.any():
            return
        positions = np.flatnonzero(finite)
        first, second = first[finite], second[finite]
        difference = np.abs(first - second)
        at = int(difference.argmax())
        place = start + int(positions[at])
        self._gather([found], first[None], second[None], difference[None], [float(difference[at])], [place])
        found.sum_abs += float(difference.sum())
        if self._ulps:
            _count_ulps([found], left[None, finite], right[None, finite])


def _integers(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # max - min, read as unsigned, is exact for every width, where a plain difference would wrap around.
    if left.dtype.kind == "b":
        left, right = left.view(np.uint8), right.view(np.uint8)
    unsigned = np.dtype(f"u{left.dtype.itemsize}")
    high, low = np.maximum(left, right), np.minimum(left, right)
    difference = high.astype(unsigned) - low.astype(unsigned)
    return left.astype(np.float64), right.astype(np.float64), difference.astype(np.float64)


def _take_relative(found: Sequence[Statistics], relative: np.ndarray) -> None:
    columns = np.maximum.reduce(relative, axis=1).tolist(), np.add.reduce(relative, axis=1).tolist()
    for statistics, most, total, square in zip(found, *columns, dots_of_rows(relative, relative), strict=True):
        statistics.max_rel = max(statistics.max_rel, most)
        statistics.sum_rel += total
        statistics.sum_squares_rel += square


def _count_ulps(found: Sequence[Statistics], left: np.ndarray, right: np.ndarray, one_sign: bool = False) -> None:
    """Add the numbers between each pair; `one_sign` where no pair is known to have two signs."""
    integer = np.dtype(f"i{left.dtype.itemsize}")
    a, b = np.ascontiguousarray(left).view(integer), np.ascontiguousarray(right).view(integer)
    distance = WORKSPACE.take("ulps", integer, a.shape)
    mixed = np.zeros(len(a), bool)
    if not one_sign:
        mixed = np.minimum.reduce(np.bitwise_xor(a, b, out=distance), axis=1) < 0
    if mixed.any() and not mixed.all():
        for rows in (np.flatnonzero(mixed).tolist(), np.flatnonzero(~mixed).tolist()):
            _count_ulps([found[row] for row in rows], left[rows], right[rows])
        return
    if not mixed.any():
        np.abs(np.subtract(a, b, out=distance), out=distance)
    else:
        # Numbers of different sign are as far apart as the sum of their distances from zero.
        mask = np.array(np.iinfo(integer).max, integer)
        unsigned = np.dtype(f"u{left.dtype.itemsize}")
        low, high = (a & mask).astype(unsigned), (b & mask).astype(unsigned)
        distance = np.where((a ^ b) < 0, low + high, np.maximum(low, high) - np.minimum(low, high))
    greatest = np.maximum.reduce(distance, axis=1).tolist()
    for statistics, most, total in zip(found, greatest, sums_of_rows(distance, max(greatest)), strict=True):
        statistics.max_ulp = max(statistics.max_ulp or 0, most)
        statistics.sum_ulp += total
