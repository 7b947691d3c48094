"""Every number about how two arrays differ, in one walk over them.

The walk takes pieces that stay in the processor's cache, so that memory is read once and nothing of the arrays' size is
allocated. Small arrays of one size are walked over together, a row each: a call of numpy takes as long as a thousand
elements do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from twinalign.verdict.chunks import CHUNK, in_memory_order, index_of, pieces, rows_of, stacked, sum_pairwise
from twinalign.verdict.classic import ClassicDifference, classic_differences, mean_of
from twinalign.verdict.walk import Statistics as Statistics
from twinalign.verdict.walk import Walk

Pair = tuple[np.ndarray, np.ndarray, float, float]
"""Reference, reproduced, rtol, atol, as `measure` takes them."""


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
    return measure_all([(reference, reproduced, rtol, atol)], everything=everything)[0]


def measure_all(pairs: Sequence[Pair], *, everything: bool = True) -> list[Statistics]:
    """`measure` of each pair, to the same bit; small arrays of one size and dtype together, which is faster."""
    found: list[Any] = [None] * len(pairs)
    alike: dict[Any, list[int]] = {}
    with np.errstate(all="ignore"):
        for at, (reference, reproduced, rtol, atol) in enumerate(pairs):
            contiguous = reference.flags.c_contiguous and reproduced.flags.c_contiguous
            if contiguous and 0 < reference.size <= CHUNK and reference.dtype.kind != "c":
                alike.setdefault((reference.dtype, reproduced.dtype, reference.size, rtol, atol), []).append(at)
            else:
                found[at] = _measure_one(reference, reproduced, rtol, atol, everything)
        for places in alike.values():
            for at, statistics in zip(places, _measure_rows([pairs[at] for at in places], everything), strict=True):
                found[at] = statistics
    return found


def _measure_rows(pairs: Sequence[Pair], everything: bool) -> list[Statistics]:
    """Statistics of contiguous arrays of one size, at most `CHUNK` elements, one dtype and one pair of tolerances."""
    reference, reproduced, rtol, atol = pairs[0]
    size = reference.size
    walk = Walk(reference.dtype, reproduced.dtype, size, rtol, atol, everything)
    found = []
    for some in rows_of(pairs, size):
        left = stacked([pair[0] for pair in some], size, "left")
        right = stacked([pair[1] for pair in some], size, "right")
        rows = [walk.started() for _ in some]
        walk.add(rows, left, right, 0)
        for statistics, pair, classic in zip(rows, some, classic_differences(left, right), strict=True):
            statistics.classic = classic
            _name_places(statistics, pair[0].shape, None)
        found += rows
    return found


def _measure_one(
    reference: np.ndarray, reproduced: np.ndarray, rtol: float, atol: float, everything: bool
) -> Statistics:
    """Statistics of two arrays of any size and layout."""
    if reference.dtype.kind == "c":
        return _measure_complex(reference, reproduced, rtol, atol, everything)
    (left, right), order = in_memory_order(reference, reproduced)
    walk = Walk(left.dtype, right.dtype, left.size, rtol, atol, everything)
    found = walk.started()
    if left.size == 0:
        return found
    least = math.inf

    def leaf(start: int, stop: int) -> np.floating:
        nonlocal least
        totals, leasts = walk.add([found], left[None, start:stop], right[None, start:stop], start)
        if leasts is not None:
            least = min(least, float(leasts[0]))
        return totals[0]

    total = sum_pairwise(left.size, leaf)
    if walk.native and found.finite == left.size:
        found.classic = ClassicDifference(mean_of(total, left.size), np.float32(found.max_abs), np.float32(least))
    _name_places(found, reference.shape, order)
    return found


def _measure_complex(
    reference: np.ndarray, reproduced: np.ndarray, rtol: float, atol: float, everything: bool
) -> Statistics:
    found = _measure_one(components(reference), components(reproduced), rtol, atol, everything)
    if found.worst_index is not None:
        found.worst_index = found.worst_index[:-1]
    if found.nonfinite_index is not None:
        found.nonfinite_index = found.nonfinite_index[:-1]
    found.mismatched, found.nonfinite_differ = _count_complex(reference, reproduced, rtol, atol)
    found.classic = None  # of the components, not of the numbers
    return found


def _name_places(found: Statistics, shape: tuple[int, ...], order: tuple[int, ...] | None) -> None:
    if found.worst_position is not None:
        found.worst_index = index_of(found.worst_position, shape, order)
    if found.nonfinite_position is not None:
        found.nonfinite_index = index_of(found.nonfinite_position, shape, order)


def components(array: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs of numbers along a new last axis."""
    array = np.ascontiguousarray(array)
    real = np.float32 if array.dtype.itemsize == 8 else np.float64
    return array.view(real).reshape(*array.shape, 2)


def _count_complex(reference: np.ndarray, reproduced: np.ndarray, rtol: float, atol: float) -> tuple[int, int]:
    """Elements over the tolerances, and elements with a component that is NaN or infinite and not so on both sides."""
    (left, right), _ = in_memory_order(reference, reproduced)
    mismatched = nonfinite = 0
    for piece in pieces(left.size):
        first, second = (components(array[piece]).astype(np.float64) for array in (left, right))
        finite = np.isfinite(first) & np.isfinite(second)
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        wrong = (~finite & ~same).any(axis=1)
        difference = np.hypot(*np.subtract(first, second, out=np.zeros_like(first), where=finite).T)
        magnitude = np.hypot(*np.where(finite, first, 0.0).T)
        nonfinite += int(np.count_nonzero(wrong))
        mismatched += int(np.count_nonzero(~wrong & (difference > atol + rtol * magnitude)))
    return mismatched, nonfinite


def value_at(array: np.ndarray, index: tuple[int, ...]) -> Any:
    """One element as a Python number."""
    value = array[index]
    return value.item() if hasattr(value, "item") and array.dtype.kind != "V" else float(value)
