"""Arrays of both sides that are the same, or near, in whatever shape or order of their axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

SAME = 1e-6
"""Relative: two values are one."""
_SAMPLE = 3
"""So many of the values that a place has one after the other tell which of the other side's are near."""
_MOST_AXES = 4
_EVERYWHERE = frozenset((0.0, 1.0, 2.0))


class KnownArrays:
    """Arrays, found again in whatever order of their axes."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        of_size: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        for array in arrays:
            of_size.setdefault(array.size, []).append((_facts(array), array))
        ordered = ((size, sorted(some, key=_size_of)) for size, some in of_size.items())
        self._of_size = {size: (np.stack([facts for facts, _ in some]), some) for size, some in ordered}

    def __contains__(self, wanted: np.ndarray) -> bool:
        if wanted.size not in self._of_size:
            return False
        own, (facts, known) = _facts(wanted), self._of_size[wanted.size]
        sizes, margin = facts[:, -1], 2 * SAME * own[-1]
        first = int(np.searchsorted(sizes, own[-1] - margin, "left"))
        last = int(np.searchsorted(sizes, own[-1] + margin, "right"))
        alike = np.abs(facts[first:last] - own).max(1) <= SAME * np.maximum(facts[first:last, -1], own[-1])
        return any(
            relative_distance(wanted, one) <= SAME
            for at in np.flatnonzero(alike)
            for one in _layouts(known[first + at][1], wanted.shape, False)
        )


def _size_of(known: tuple[np.ndarray, np.ndarray]) -> float:
    return float(known[0][-1])


def _facts(array: np.ndarray) -> np.ndarray:
    """What does not depend on the order: mean, least and greatest value, root of the mean square."""
    values = np.where(np.isfinite(array), array, 0.0).astype(np.float64)
    return np.array([values.mean(), values.min(), values.max(), float(np.sqrt(np.mean(values**2)))])


def fitted(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> tuple[float, float, list[np.ndarray]] | None:
    """How far the reference's values are from the port's, in the layout in which they are nearest, the share of equal
    elements, and these values; None if they have other sizes. A sample of them tells."""
    pairs = list(zip(ours, theirs, strict=False))
    if any(one.size != other.size for one, other in pairs):
        return None
    sample = [pairs[round(at)] for at in np.linspace(0, len(pairs) - 1, min(_SAMPLE, len(pairs)))]
    choices = [list(_layouts(other, one.shape, True)) for one, other in sample]
    if len({len(one) for one in choices}) > 1:
        choices = [one[:1] for one in choices]
    own = [one for one, _ in sample]
    every = [sum(map(relative_distance, own, made)) / len(own) for made in zip(*choices, strict=True)]
    best = int(np.argmin(every))
    equal = _equal(own, [choice[best] for choice in choices])
    laid_out = [next(itertools.islice(_layouts(other, one.shape, True), best, None), None) for one, other in pairs]
    filled = [
        one if one is not None else other.reshape(of.shape) for one, (of, other) in zip(laid_out, pairs, strict=True)
    ]
    return every[best], equal, filled


def _layouts(array: np.ndarray, shape: Sequence[int], must_fit: bool) -> Iterator[np.ndarray]:
    """An array in another shape of its size, and with its axes in another order; `must_fit`: only in that shape."""
    yield array.reshape(shape)
    axes = range(array.ndim if 1 < array.ndim <= _MOST_AXES else 0)
    for order in itertools.islice(itertools.permutations(axes), 1, None):
        made = array.transpose(order)
        if not must_fit or made.shape == tuple(shape):
            yield made.reshape(shape)


def tells(values: Sequence[np.ndarray]) -> bool:
    """Whether values are more than one small whole number, which any factor or size may be by chance."""
    return any(array.size > 1 or abs(array.item()) not in _EVERYWHERE for array in values)


def _equal(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """Share of equal elements, of all values."""
    return float(
        np.mean(
            [
                np.mean(np.abs(one - other) <= SAME * np.abs(other).max(initial=0.0))
                for one, other in zip(ours, theirs, strict=True)
            ]
        )
    )


def relative_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Relative, of values in the same shape."""
    left, right = (np.asarray(array, np.float64) for array in (one, other))
    if not np.array_equal(np.isfinite(left), np.isfinite(right)):
        return math.inf
    left, right = (np.where(np.isfinite(array), array, 0.0) for array in (left, right))
    size = float(np.abs(right).max(initial=0.0))
    apart = float(np.abs(left - right).max(initial=0.0))
    return apart / size if size else (0.0 if not apart else math.inf)
