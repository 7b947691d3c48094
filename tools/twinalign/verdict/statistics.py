"""Every number about how two arrays differ, in one walk over them.

The walk takes pieces that stay in the processor's cache, so that memory is read once and nothing of the arrays' size is
allocated. Arrays up to `_EXACT` elements, and every dtype but float32, are computed in float64; larger float32 arrays
in float32 piece by piece, with sums of pieces in float64: RMS, relative errors and cosine then hold to about 1e-6 of
themselves, maxima to a rounding of float32.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from twinalign.verdict.chunks import CHUNK, in_memory_order, index_of, pieces, sum_pairwise
from twinalign.verdict.classic import ClassicDifference, mean_of

_EXACT = 1 << 16
_SAFE_SQUARES = (1e-26, 1e36)
"""Sums of squares in float32 outside of this may have underflown or overflown and are taken again in float64."""


@dataclasses.dataclass
class Statistics:
    """How a reproduced array differs from its reference; over elements that are finite on both sides."""

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
    nonfinite_index: tuple[int, ...] | None = None
    classic: ClassicDifference | None = None

    @property
    def mean_abs(self) -> float:
        """Mean absolute difference."""
        return self.sum_abs / self.finite if self.finite else 0.0

    @property
    def rms_abs(self) -> float:
        """Root of the mean square of the difference."""
        return math.sqrt(self.sum_squares / self.finite) if self.finite else 0.0

    @property
    def mean_rel(self) -> float:
        """Mean of |difference / reference|."""
        return self.sum_rel / self.nonzero if self.nonzero else 0.0

    @property
    def rms_rel(self) -> float:
        """Root of the mean square of difference / reference."""
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


def measure(
    reference: np.ndarray, reproduced: np.ndarray, rtol: float, atol: float, *, everything: bool = True
) -> Statistics:
    """Statistics of two arrays of one shape and one dtype.

    Args:
        reference: Any number type; complex counts as pairs of numbers, except that an element mismatches as a whole, by
            its modulus (as in numpy.isclose and torch.isclose).
        reproduced: The same shape and dtype.
        rtol: An element mismatches where |difference| > atol + rtol |reference|.
        atol: See `rtol`.
        everything: False leaves out relative errors, ULP and cosine: what a verdict needs and no more.
    """
    if reference.dtype.kind == "c":
        found = measure(_components(reference), _components(reproduced), rtol, atol, everything=everything)
        if found.worst_index is not None:
            found.worst_index = found.worst_index[:-1]
        if found.nonfinite_index is not None:
            found.nonfinite_index = found.nonfinite_index[:-1]
        found.mismatched, found.nonfinite_differ = _count_complex(reference, reproduced, rtol, atol)
        return found
    (left, right), order = in_memory_order(reference, reproduced)
    walk = _Walk(left, right, rtol, atol, everything)
    with np.errstate(all="ignore"):
        found = walk.run()
    if found.worst_position is not None:
        found.worst_index = index_of(found.worst_position, reference.shape, order)
    if walk.nonfinite_position is not None:
        found.nonfinite_index = index_of(walk.nonfinite_position, reference.shape, order)
    return found


def _components(array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array)
    real = np.float32 if array.dtype.itemsize == 8 else np.float64
    return array.view(real).reshape(*array.shape, 2)


def _count_complex(reference: np.ndarray, reproduced: np.ndarray, rtol: float, atol: float) -> tuple[int, int]:
    """Elements over the tolerances, and elements with a component that is NaN or infinite and not so on both sides."""
    (left, right), _ = in_memory_order(reference, reproduced)
    mismatched = nonfinite = 0
    for piece in pieces(left.size):
        first, second = (_components(array[piece]).astype(np.float64) for array in (left, right))
        finite = np.isfinite(first) & np.isfinite(second)
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        wrong = (~finite & ~same).any(axis=1)
        difference = np.hypot(*np.subtract(first, second, out=np.zeros_like(first), where=finite).T)
        magnitude = np.hypot(*np.where(finite, first, 0.0).T)
        nonfinite += int(np.count_nonzero(wrong))
        mismatched += int(np.count_nonzero(~wrong & (difference > atol + rtol * magnitude)))
    return mismatched, nonfinite


class _Walk:
    """One pass over two flat arrays; the buffers that it reuses from piece to piece."""

    def __init__(self, left: np.ndarray, right: np.ndarray, rtol: float, atol: float, everything: bool) -> None:
        self._left, self._right = left, right
        self._rtol, self._atol = rtol, atol
        self._everything = everything
        self._native = left.dtype == np.float32 and right.dtype == np.float32 and left.size > _EXACT
        self._work = np.dtype(np.float32 if self._native else np.float64)
        length = min(CHUNK, max(left.size, 1))
        self._difference = np.empty(length, self._work)
        self._scratch = np.empty(length, self._work)
        self._flags = np.empty(length, bool)
        self._least = np.float32(np.inf)
        self.nonfinite_position: int | None = None
        self.found = Statistics(left.size, left.size)
        floating = left.dtype.kind == "f" or left.dtype.name == "bfloat16"
        if everything and floating and left.dtype.itemsize <= 8 and left.dtype == right.dtype:
            self.found.max_ulp = 0

    def run(self) -> Statistics:
        """Walk over everything."""
        if self._left.size == 0:
            return self.found
        total = sum_pairwise(self._left.size, self._leaf)
        if self._native:
            greatest = np.float32(self.found.max_abs)
            mean = mean_of(total, self._left.size)
            if self.found.finite == self._left.size:
                self.found.classic = ClassicDifference(mean, greatest, self._least)
        return self.found

    def _leaf(self, start: int, stop: int) -> np.floating:
        left, right = self._left[start:stop], self._right[start:stop]
        if left.dtype.kind in "iub":
            first, second, difference = self._integers(left, right)
        else:
            first, second = self._as_work(left), self._as_work(right)
            difference = self._difference[: stop - start]
            np.abs(np.subtract(first, second, out=difference), out=difference)
        greatest_at = int(difference.argmax())  # a NaN counts as the greatest
        greatest = float(difference[greatest_at])
        if not math.isfinite(greatest):
            self._with_nonfinite(left, right, start)
            return difference.dtype.type(np.nan)
        self._gather(first, second, difference, start, greatest, greatest_at)
        total = np.add.reduce(difference)
        if self._native:
            self._least = min(self._least, difference.min())
        self.found.sum_abs += float(total)
        if self.found.max_ulp is not None:
            self._count_ulps(left, right)
        return total

    def _as_work(self, piece: np.ndarray) -> np.ndarray:
        return piece if piece.dtype == self._work else piece.astype(self._work)

    def _integers(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        # max - min, read as unsigned, is exact for every width, where a plain difference would wrap around.
        if left.dtype.kind == "b":
            left, right = left.view(np.uint8), right.view(np.uint8)
        unsigned = np.dtype(f"u{left.dtype.itemsize}")
        high, low = np.maximum(left, right), np.minimum(left, right)
        difference = high.astype(unsigned) - low.astype(unsigned)
        return left.astype(np.float64), right.astype(np.float64), difference.astype(np.float64)

    def _gather(
        self, first: np.ndarray, second: np.ndarray, difference: np.ndarray, start: int, greatest: float, at: int
    ) -> None:
        found = self.found
        if greatest > found.max_abs or found.worst_position is None:
            found.max_abs, found.worst_position = max(greatest, found.max_abs), start + at
        if greatest:
            found.sum_squares += _dot(difference, difference)
        if not self._everything:
            if greatest > self._atol:
                self._count_mismatches(np.abs(first, out=self._scratch[: len(first)]), difference, greatest)
            return
        found.reference_squares += _dot(first, first)
        found.dot += _dot(first, second)
        found.reproduced_squares += _dot(second, second)
        magnitude = np.abs(first, out=self._scratch[: len(first)])
        found.reference_max = max(found.reference_max, float(magnitude.max()))
        nonzero = len(magnitude) if magnitude.min() > 0 else int(np.count_nonzero(magnitude))
        found.nonzero += nonzero
        if greatest == 0:
            return
        self._count_mismatches(magnitude, difference, greatest)
        if nonzero == len(magnitude):
            relative = np.divide(difference, magnitude, out=magnitude)
        else:
            keep = magnitude > 0
            relative = difference[keep] / magnitude[keep]
        if nonzero:
            found.max_rel = max(found.max_rel, float(relative.max()))
            found.sum_rel += float(np.add.reduce(relative))
            found.sum_squares_rel += _dot(relative, relative)

    def _count_mismatches(self, magnitude: np.ndarray, difference: np.ndarray, greatest: float) -> None:
        if greatest <= self._atol:
            return
        allowed = magnitude * self._rtol
        allowed += self._atol
        flags = np.greater(difference, allowed, out=self._flags[: len(difference)])
        self.found.mismatched += int(np.count_nonzero(flags))

    def _count_ulps(self, left: np.ndarray, right: np.ndarray) -> None:
        integer = np.dtype(f"i{left.dtype.itemsize}")
        a, b = np.ascontiguousarray(left).view(integer), np.ascontiguousarray(right).view(integer)
        if np.bitwise_xor(a, b).min() >= 0:
            distance = np.abs(a - b)
        else:
            # Numbers of different sign are as far apart as the sum of their distances from zero.
            mask = np.array(np.iinfo(integer).max, integer)
            unsigned = np.dtype(f"u{left.dtype.itemsize}")
            low, high = (a & mask).astype(unsigned), (b & mask).astype(unsigned)
            distance = np.where((a ^ b) < 0, low + high, np.maximum(low, high) - np.minimum(low, high))
        found = self.found
        found.max_ulp = max(int(found.max_ulp or 0), int(distance.max()))
        found.sum_ulp += float(distance.sum(dtype=np.float64))

    def _with_nonfinite(self, left: np.ndarray, right: np.ndarray, start: int) -> None:
        """A piece with NaN, infinities, or a difference beyond float32: taken apart, in float64."""
        found = self.found
        first, second = left.astype(np.float64), right.astype(np.float64)
        finite = np.isfinite(first) & np.isfinite(second)
        found.finite -= int(len(first) - np.count_nonzero(finite))
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        wrong = ~finite & ~same
        if wrong.any():
            found.nonfinite_differ += int(np.count_nonzero(wrong))
            if self.nonfinite_position is None:
                self.nonfinite_position = start + int(wrong.argmax())
        if not finite.any():
            return
        positions = np.flatnonzero(finite)
        first, second = first[finite], second[finite]
        difference = np.abs(first - second)
        at = int(difference.argmax())
        scratch, self._scratch = self._scratch, np.empty(len(first))
        flags, self._flags = self._flags, np.empty(len(first), bool)
        self._gather(first, second, difference, start + int(positions[at]) - at, float(difference[at]), at)
        self._scratch, self._flags = scratch, flags
        found.sum_abs += float(difference.sum())
        if found.max_ulp is not None:
            self._count_ulps(left[finite], right[finite])


_UNSHARED = 8192


def _dot(first: np.ndarray, second: np.ndarray) -> float:
    if first.dtype == np.float32:
        value = float(np.dot(first, second))
        if not _SAFE_SQUARES[0] < abs(value) < _SAFE_SQUARES[1]:
            return _dot(first.astype(np.float64), second.astype(np.float64))
    else:
        # OpenBLAS shares longer float64 products among threads, which on busy processors takes milliseconds.
        value = sum(
            float(np.dot(first[at : at + _UNSHARED], second[at : at + _UNSHARED]))
            for at in range(0, len(first), _UNSHARED)
        )
    if not math.isfinite(value):  # squares beyond float64: scaled, and the root of the sum stays representable
        return math.inf
    return value


def value_at(array: np.ndarray, index: tuple[int, ...]) -> Any:
    """One element as a Python number."""
    value = array[index]
    return value.item() if hasattr(value, "item") and array.dtype.kind != "V" else float(value)
