"""Every number about how two arrays differ, in one pass over them.

The pass reads pieces that stay in the processor's cache, so memory is read once and nothing of the arrays' size is
allocated. Small arrays of one size are processed together, a row each: one numpy call takes as long as a thousand
elements.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from twinalign.files.recordings import real_view
from twinalign.verdict.cache_pieces import CHUNK, in_memory_order, index_of, pieces, rows_of, stacked, sum_pairwise
from twinalign.verdict.classic import classic_means, mean_of
from twinalign.verdict.difference_accumulator import DifferenceAccumulator
from twinalign.verdict.difference_accumulator import Statistics as Statistics

Pair = tuple[np.ndarray, np.ndarray, float, float]
"""Reference, reproduced, rtol, atol, as `measure` takes them."""


def measure(
    reference: np.ndarray, reproduced: np.ndarray, rtol: float, atol: float, *, everything: bool = True
) -> Statistics:
    """Statistics of two arrays of one shape and one dtype.

    An element mismatches if |difference| > atol + rtol |reference|. Complex numbers count as pairs, except that an
    element mismatches as a whole, by its modulus (as in numpy.isclose and torch.isclose). `everything=False` leaves out
    relative errors, ULP and cosine, which a verdict does not need.
    """
    return measure_all([(reference, reproduced, rtol, atol)], everything=everything)[0]


def measure_all(pairs: Sequence[Pair], *, everything: bool = True) -> list[Statistics]:
    """`measure` for each pair, bit-equal; small arrays of one size and dtype are measured together, which is faster."""
    found: list[Any] = [None] * len(pairs)
    alike: dict[Any, list[int]] = {}
    with np.errstate(all="ignore"):
        for at, (reference, reproduced, rtol, atol) in enumerate(pairs):
            contiguous = reference.flags.c_contiguous and reproduced.flags.c_contiguous
            if contiguous and 0 < reference.size <= CHUNK and reference.dtype.kind != "c":
                alike.setdefault((reference.dtype, reproduced.dtype, reference.size, rtol, atol), []).append(at)
            else:
                found[at] = _measure_one(reference, reproduced, rtol, atol, everything)
        for positions in alike.values():
            rows = _measure_rows([pairs[at] for at in positions], everything)
            for at, statistics in zip(positions, rows, strict=True):
                found[at] = statistics
    return found


def _measure_rows(pairs: Sequence[Pair], everything: bool) -> list[Statistics]:
    """Statistics of contiguous arrays of one size, at most `CHUNK` elements, one dtype and one pair of tolerances."""
    reference, reproduced, rtol, atol = pairs[0]
    size = reference.size
    accumulator = DifferenceAccumulator(reference.dtype, reproduced.dtype, size, rtol, atol, everything)
    found = []
    for some in rows_of(pairs, size):
        left = stacked([pair[0] for pair in some], size, "left")
        right = stacked([pair[1] for pair in some], size, "right")
        rows = [accumulator.started() for _ in some]
        accumulator.add(rows, left, right, 0)
        for statistics, pair, mean in zip(rows, some, classic_means(left, right), strict=True):
            statistics.classic_mean = mean
            _name_positions(statistics, pair[0].shape, None)
        found += rows
    return found


def _measure_one(
    reference: np.ndarray, reproduced: np.ndarray, rtol: float, atol: float, everything: bool
) -> Statistics:
    if reference.dtype.kind == "c":
        found = _measure_one(components(reference), components(reproduced), rtol, atol, everything)
        found.worst_index = found.worst_index and found.worst_index[:-1]
        found.nonfinite_index = found.nonfinite_index and found.nonfinite_index[:-1]
        found.mismatched, found.nonfinite_differ = _count_complex(reference, reproduced, rtol, atol)
        found.classic_mean = None  # of the components, not of the numbers
        return found
    (left, right), order = in_memory_order(reference, reproduced)
    accumulator = DifferenceAccumulator(left.dtype, right.dtype, left.size, rtol, atol, everything)
    found = accumulator.started()
    if left.size == 0:
        return found

    def leaf(start: int, stop: int) -> np.floating:
        return accumulator.add([found], left[None, start:stop], right[None, start:stop], start)[0]

    total = sum_pairwise(left.size, leaf, arrays=(left, right))
    if accumulator.native and found.finite == left.size:
        found.classic_mean = mean_of(total, left.size)
    _name_positions(found, reference.shape, order)
    return found


def _name_positions(found: Statistics, shape: tuple[int, ...], order: tuple[int, ...] | None) -> None:
    if found.worst_position is not None:
        found.worst_index = index_of(found.worst_position, shape, order)
    if found.nonfinite_position is not None:
        found.nonfinite_index = index_of(found.nonfinite_position, shape, order)


def components(array: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs of numbers along a new last axis."""
    return real_view(array).reshape(*array.shape, 2)


def _count_complex(reference: np.ndarray, reproduced: np.ndarray, rtol: float, atol: float) -> tuple[int, int]:
    """Number of elements outside the tolerances, and of elements that are not finite and differ."""
    (left, right), _ = in_memory_order(reference, reproduced)
    mismatched = nonfinite = 0
    for piece in pieces(left.size, arrays=(left, right)):
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
