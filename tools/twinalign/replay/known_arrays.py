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
        of_size: dict[int, list[tuple[np.ndarray, int, np.ndarray]]] = {}
        for number, array in enumerate(arrays):
            of_size.setdefault(array.size, []).append((_facts(array), number, array))
        ordered = ((size, sorted(some, key=_size_of)) for size, some in of_size.items())
        self._of_size = {size: (np.stack([facts for facts, _, _ in some]), some) for size, some in ordered}

    def __contains__(self, wanted: np.ndarray) -> bool:
        return self.place_of(wanted) is not None

    def place_of(self, wanted: np.ndarray) -> int | None:
        """Where an array stands; None if it is none of them."""
        if wanted.size not in self._of_size:
            return None
        own, (facts, known) = _facts(wanted), self._of_size[wanted.size]
        sizes, margin = facts[:, -1], 2 * SAME * own[-1]
        first = int(np.searchsorted(sizes, own[-1] - margin, "left"))
        last = int(np.searchsorted(sizes, own[-1] + margin, "right"))
        alike = np.abs(facts[first:last] - own).max(1) <= SAME * np.maximum(facts[first:last, -1], own[-1])
        for at in np.flatnonzero(alike):
            _, place, array = known[first + at]
            if any(relative_distance(wanted, one) <= SAME for one in _layouts(array, wanted.shape, False)):
                return place
        return None


def _size_of(known: tuple[np.ndarray, int, np.ndarray]) -> float:
    return float(known[0][-1])


def _facts(array: np.ndarray) -> np.ndarray:
    """What does not depend on the order: mean, least and greatest value, root of the mean square."""
    values = np.where(np.isfinite(array), array, 0.0).astype(np.float64)
    return np.array([values.mean(), values.min(), values.max(), float(np.sqrt(np.mean(values**2)))])


def nearest_layout(
    ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], in_any_layout: bool = True
) -> tuple[float, float, int] | None:
    """How far the reference's values are from the port's in the layout in which they are nearest, the share of equal
    elements, and which layout that is, for `laid_out`; None if they have other sizes. A sample of them tells."""
    pairs = list(zip(ours, theirs, strict=False))
    if any(one.size != other.size for one, other in pairs):
        return None
    sample = [pairs[round(at)] for at in np.linspace(0, len(pairs) - 1, min(_SAMPLE, len(pairs)))]
    choices = [list(_layouts(other, one.shape, True)) for one, other in sample]
    if not in_any_layout or len({len(one) for one in choices}) > 1:
        choices = [one[:1] for one in choices]
    own = [one for one, _ in sample]
    every = [sum(map(relative_distance, own, made)) / len(own) for made in zip(*choices, strict=True)]
    best = int(np.argmin(every))
    equal = _equal(own, [choice[best] for choice in choices])
    return every[best], equal, best


def laid_out(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], layout: int) -> list[np.ndarray]:
    """The reference's values in the port's layout.

    What the reference has besides comes behind: with right values a loop of the port's may go on for as long.
    """
    further = list(zip(itertools.cycle(ours), theirs[len(ours) :], strict=False)) if ours else []
    if any(one.size != other.size for one, other in further):
        further = []
    pairs = itertools.chain(zip(ours, theirs, strict=False), further)
    laid = (
        (next(itertools.islice(_layouts(other, one.shape, True), layout, None), None), one, other)
        for one, other in pairs
    )
    return [found if found is not None else other.reshape(one.shape) for found, one, other in laid]


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


def are_equal(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    """Whether values are the same one after the other, in the same shapes, as far as both go on."""
    pairs = list(zip(one, other, strict=False))
    if not pairs or any(left.shape != right.shape for left, right in pairs):
        return False
    return all(relative_distance(left, right) <= SAME for left, right in pairs)


def relative_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Relative, of values in the same shape."""
    left, right = (np.asarray(array, np.float64) for array in (one, other))
    if not np.array_equal(np.isfinite(left), np.isfinite(right)):
        return math.inf
    left, right = (np.where(np.isfinite(array), array, 0.0) for array in (left, right))
    size = float(np.abs(right).max(initial=0.0))
    apart = float(np.abs(left - right).max(initial=0.0))
    return apart / size if size else (0.0 if not apart else math.inf)
