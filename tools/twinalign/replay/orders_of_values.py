"""In which order, and with which axes, the port has what the reference has one after the other, as of parameters."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from twinalign.replay.aligned_code import Code
from twinalign.replay.known_arrays import SAME, relative_distance
from twinalign.replay.noted_expressions import Noted, Visited

_LEAST = 2
_MOST_AXES = 4


@dataclasses.dataclass(frozen=True)
class Arrangement:
    """How the reference's values become the port's, again and again, as in each step of a training.

    Attributes:
        order: which of the reference's each is.
        axes: its axes in the port's order; None if both have the same.
    """

    order: Sequence[int]
    axes: Sequence[tuple[int, ...] | None]

    def of(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Values in that order; what is left over is left out."""
        count = len(self.order)
        rounds = range(0, len(values) - len(values) % count, count)
        return [
            _with_axes(values[one + at], axes) for one in rounds for at, axes in zip(self.order, self.axes, strict=True)
        ]


class OrdersOfValues:
    """What tells the order: places of each function that have all of the reference's values, one of each.

    Args:
        visited, noted: the port's functions, and their values.
        place_of: where the reference has an array in its table, the first that is the same; None where it has not.
        arrays, theirs: that table, and where the values of each place of the reference stand in it.
    """

    def __init__(
        self,
        visited: Visited,
        noted: Noted,
        place_of: Callable[[np.ndarray], int | None],
        arrays: Sequence[np.ndarray],
        theirs: Sequence[Sequence[int]],
    ) -> None:
        self._visited, self._noted, self._arrays, self._theirs = visited, noted, arrays, theirs
        self._place_of = place_of
        self.of = functools.cache(self._of)

    def _of(self, code: Code, count: int) -> Arrangement | None:
        """That of so many values which a function has in a place; None if no place tells."""
        known = [self._first(others, count) for others in self._theirs if len(others) >= count >= _LEAST]
        counted = [(Counter(one), one) for one in dict.fromkeys(known) if len(set(one)) > 1]
        keys: list[tuple[Sequence[int], Sequence[int], Sequence[int | None]]] = []
        for number, values in self._noted.places.items():
            if len(values) == count and self._visited.places[number].code is code:
                places = [self._place_of(self._noted.table.arrays[one]) for one in values]
                ours = [one for one in places if one is not None]
                same = (theirs for times, theirs in counted if len(ours) == count and times == Counter(ours))
                keys += [(values, ours, theirs) for theirs in itertools.islice(same, 1)]
        waiting: defaultdict[tuple[int | None, ...], list[int]] = defaultdict(list)
        for at, key in enumerate(zip(*(theirs for _, _, theirs in keys), strict=True)):
            waiting[key].append(at)
        order = []
        for key in zip(*(ours for _, ours, _ in keys), strict=True):
            if not waiting[key]:
                return None
            order.append(waiting[key].pop(0))
        return Arrangement(order, [self._axes(keys, at) for at in range(count)]) if keys else None

    def _axes(
        self, keys: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int | None]]], at: int
    ) -> tuple[int, ...] | None:
        """Of the values with this number, by one of them that tells."""
        for values, ours, _ in keys:
            own, other = self._noted.table.arrays[values[at]], self._arrays[ours[at]]
            if 1 < other.ndim <= _MOST_AXES and other.ndim == own.ndim and np.ptp(other) > 0:
                for axes in itertools.permutations(range(other.ndim)):
                    made = other.transpose(axes)
                    if made.shape == own.shape and relative_distance(own, made) <= SAME:
                        return axes if list(axes) != sorted(axes) else None
        return None

    @functools.cache  # noqa: B019 - lives as long as one search
    def _canonical(self, number: int) -> int | None:
        return self._place_of(self._arrays[number])

    def _first(self, numbers: Sequence[int], count: int) -> tuple[int | None, ...]:
        return tuple(self._canonical(one) for one in numbers[:count])


def _with_axes(array: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
    return array.transpose(axes) if axes is not None and array.ndim == len(axes) else array
