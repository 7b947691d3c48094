"""The place in the port's code that goes wrong: with the reference's value there, all that follows is right.

Both sides had the same inputs. Each expression of the port whose value the reference nowhere has is given a value of
the reference's, the first that is computed first, until what comes out is right.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.likeness import ratio, spelled_words, words_of
from twinalign.replay.noted_expressions import Noted, Place, Visited, numbers_of

_SAME = 1e-6
"""Relative: two values are one."""
_NEAREST, _LIKEST = 3, 1
"""So many values of the reference's are tried in a place: those nearest to the port's, and those written alike."""
_MOST_TURNS = 16
"""So many combinations are tried of the items of a tuple."""
_MOST_AXES = 4
_MOST_OF_SIZES = 4
_EVERYWHERE = frozenset((0.0, 1.0, 2.0))
Like = Callable[[np.ndarray, Any], Any]


@dataclasses.dataclass(frozen=True)
class Other:
    """What the reference has in a place of its code: where, and the values one after the other."""

    file: str
    line: int
    text: str
    values: Sequence[np.ndarray]
    is_absent: bool = False
    """Whether the port has its values nowhere."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A place of the port that is right with the reference's values in its parts: itself, or items of a tuple.

    Attributes:
        parts: each place that takes values, what the reference has there, and its values in the port's layout.
        is_where: whether all that it is made of is right, so that it goes wrong just there.
    """

    place: Place
    parts: Sequence[tuple[Place, Other, Sequence[np.ndarray]]]
    is_where: bool


_Offer = tuple[Other, list[np.ndarray]]


class Trials:
    """Places of the port that may take the reference's values.

    Args:
        visited: the port's functions.
        noted: their values.
        arrays, places: the reference's, as `read_values` has them.
        like: as `Backend.to_tensor_like`.
    """

    def __init__(
        self,
        visited: Visited,
        noted: Noted,
        arrays: Sequence[np.ndarray],
        places: Sequence[Mapping[str, Any]],
        like: Like,
    ) -> None:
        self._visited, self._noted, self._like = visited, noted, like
        self._numbers = {id(place.node): number for number, place in enumerate(visited.places)}
        ours = _Known(noted.table.arrays)
        known_ours = {number for number, array in enumerate(arrays) if array in ours}
        theirs = _Known(arrays)
        self._known = {number for number, array in enumerate(noted.table.arrays) if array in theirs}
        self._others = [
            Other(
                one["file"],
                one["line"],
                one["text"],
                [arrays[n] for n in one["values"]],
                not known_ours.issuperset(one["values"]),
            )
            for one in places
            if _tells([arrays[n] for n in one["values"]])
        ]

    def found(self, is_right: Callable[[], bool], wanted: Callable[[Place], bool], seconds: float) -> Found | None:
        """The first place with which all is right, of those that are wanted; `seconds`: of processor time."""
        until = time.process_time() + seconds
        every = [(number, self._offered_together(number)) for number in self._absent(wanted)]
        found: Found | None = None
        for turn in range(_MOST_TURNS):
            for at, (number, together) in enumerate(every):
                if time.process_time() > until:
                    return found
                if turn >= len(together):
                    continue
                if self._is_right_with({one: offer[1] for one, offer in together[turn].items()}, is_right):
                    places = self._visited.places
                    parts = [(places[one], *offer) for one, offer in together[turn].items()]
                    found = Found(places[number], parts, self._goes_wrong(number))
                    every = every[:at]  # what is computed before may be where it begins
                    break
        return found

    def _absent(self, wanted: Callable[[Place], bool]) -> list[int]:
        """Places whose values the reference lacks, of those with the same values the first, and tuples of such; small
        whole numbers last: they are sizes and places as a rule."""
        found: dict[tuple[int, ...], int] = {}
        for number, values in self._noted.places.items():
            if not wanted(self._visited.places[number]):
                continue
            if not self._known.issuperset(values):
                found.setdefault(tuple(values), number)
            elif any(not self._known.issuperset(self._noted.places[one]) for one in self._items(number)):
                found[(-number,)] = number
        return sorted(found.values(), key=self._is_size)

    def _is_size(self, number: int) -> bool:
        arrays, values = self._noted.table.arrays, self._noted.places[number]
        return bool(values) and all(
            arrays[one].size <= _MOST_OF_SIZES and arrays[one].dtype.kind in "iub" for one in values
        )

    def _items(self, number: int) -> list[int]:
        """Places of what a tuple has in it."""
        node = self._visited.places[number].node
        items = node.elts if isinstance(node, ast.Tuple) else []
        return [one for item in items if self._noted.places.get(one := self._numbers.get(id(item), -1))]

    def _offered_together(self, number: int) -> list[dict[int, _Offer]]:
        """What a place, or several items of a tuple at once, may take."""
        if self._noted.places[number]:
            return [{number: offer} for offer in self._offered(number)]
        items = self._items(number)
        choices = [[None, *self._offered(one)] for one in items]
        every = itertools.islice(itertools.product(*choices), _MOST_TURNS * _MOST_TURNS)
        made = [{one: offer for one, offer in zip(items, choice, strict=True) if offer is not None} for choice in every]
        return [one for one in made if len(one) > 1][:_MOST_TURNS]

    def _is_right_with(self, values: Mapping[int, Sequence[np.ndarray]], is_right: Callable[[], bool]) -> bool:
        with self._visited.by(Exchanged(values, self._like)):
            try:
                return is_right()
            except Exception:  # the user's code may not take these
                return False

    def _goes_wrong(self, number: int) -> bool:
        """Whether the reference has the values of all names in an expression."""
        inside = {id(one) for one in ast.walk(self._visited.places[number].node)}
        return all(
            self._known.issuperset(values)
            for other, values in self._noted.places.items()
            if isinstance(node := self._visited.places[other].node, (ast.Name, ast.Attribute)) and id(node) in inside
        )

    def _offered(self, number: int) -> list[_Offer]:
        """The reference's values that a place may take, the likeliest first."""
        ours = [self._noted.table.arrays[one] for one in self._noted.places[number]]
        words = words_of(self._visited.places[number].node)
        near: list[tuple[bool, float, float, Other, list[np.ndarray]]] = []
        seen = set[tuple[int, ...]]()
        for other in self._others:
            key = tuple(map(id, other.values[: len(ours)]))
            if len(other.values) < len(ours) or key in seen:
                continue
            seen.add(key)
            if (fitted := _fitted(ours, other.values)) is not None and 0.0 < fitted[0] < math.inf:
                near.append((not other.is_absent, -_equal(ours, fitted[1]), fitted[0], other, fitted[1]))
        near.sort(key=lambda one: one[:3])
        alike = sorted(near, key=lambda one: -ratio(words, spelled_words(one[3].text), 0.0))
        if all(array.size == 1 for array in ours):  # how near one number is to another says little
            chosen = [*alike[:_NEAREST], *near[:_LIKEST]]
        else:
            chosen = [*near[:_NEAREST], *alike[:_LIKEST]]
        return list({id(one[3]): one[3:] for one in chosen}.values())


class Exchanged:
    """Gives places other values, one after the other and from the first again, as a visitor; `like`: as
    `Backend.to_tensor_like`."""

    def __init__(self, values: Mapping[int, Sequence[np.ndarray]], like: Like) -> None:
        self._values, self._times, self._like = values, Counter[int](), like

    def __call__(self, place: int, value: Any) -> Any:
        if (values := self._values.get(place)) is None:
            return value
        self._times[place] += 1
        array = values[(self._times[place] - 1) % len(values)]
        ours = numbers_of(value)
        return as_value(array, value, self._like) if ours is not None and ours.size == array.size else value


def as_value(array: np.ndarray, value: Any, like: Like) -> Any:
    """An array as what this value is: a list, a number, an array or a tensor."""
    if isinstance(value, (list, tuple)):
        return type(value)(type(one)(new) for one, new in zip(value, array.tolist(), strict=True))
    if isinstance(value, np.ndarray):
        return array.astype(value.dtype)
    if isinstance(value, (bool, int, float, np.generic)):
        return type(value)(array.item())
    return like(array, value)


class _Known:
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
        sizes, margin = facts[:, -1], 2 * _SAME * own[-1]
        first = int(np.searchsorted(sizes, own[-1] - margin, "left"))
        last = int(np.searchsorted(sizes, own[-1] + margin, "right"))
        alike = np.abs(facts[first:last] - own).max(1) <= _SAME * np.maximum(facts[first:last, -1], own[-1])
        return any(
            _distance(wanted, one) <= _SAME
            for at in np.flatnonzero(alike)
            for one in _layouts(known[first + at][1], wanted.shape, False)
        )


def _size_of(known: tuple[np.ndarray, np.ndarray]) -> float:
    return float(known[0][-1])


def _facts(array: np.ndarray) -> np.ndarray:
    """What does not depend on the order: mean, least and greatest value, root of the mean square."""
    values = np.where(np.isfinite(array), array, 0.0).astype(np.float64)
    return np.array([values.mean(), values.min(), values.max(), float(np.sqrt(np.mean(values**2)))])


def _fitted(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> tuple[float, list[np.ndarray]] | None:
    """How far the reference's values are from the port's, in the layout in which they are nearest, and these values;
    None if they have other sizes."""
    pairs = list(zip(ours, theirs, strict=False))
    if any(one.size != other.size for one, other in pairs):
        return None
    choices = [list(_layouts(other, one.shape, True)) for one, other in pairs]
    if not all(choices):
        return None
    if len({len(one) for one in choices}) > 1:
        choices = [one[:1] for one in choices]
    every = [
        (sum(_distance(one, other) for one, other in zip(ours, made, strict=True)) / len(made), made)
        for made in (list(one) for one in zip(*choices, strict=True))
    ]
    return min(every, key=lambda one: one[0])


def _layouts(array: np.ndarray, shape: Sequence[int], must_fit: bool) -> Iterator[np.ndarray]:
    """An array in another shape of its size, and with its axes in another order; `must_fit`: only in that shape."""
    yield array.reshape(shape)
    axes = range(array.ndim if 1 < array.ndim <= _MOST_AXES else 0)
    for order in itertools.islice(itertools.permutations(axes), 1, None):
        made = array.transpose(order)
        if not must_fit or made.shape == tuple(shape):
            yield made.reshape(shape)


def _tells(values: Sequence[np.ndarray]) -> bool:
    """Whether values are more than one small whole number, which any factor or size may be by chance."""
    return any(array.size > 1 or abs(array.item()) not in _EVERYWHERE for array in values)


def _equal(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """Share of equal elements, of all values."""
    return float(
        np.mean(
            [
                np.mean(np.abs(one - other) <= _SAME * np.abs(other).max(initial=0.0))
                for one, other in zip(ours, theirs, strict=True)
            ]
        )
    )


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Relative, of values in the same shape."""
    left, right = (np.asarray(array, np.float64) for array in (one, other))
    if not np.array_equal(np.isfinite(left), np.isfinite(right)):
        return math.inf
    left, right = (np.where(np.isfinite(array), array, 0.0) for array in (left, right))
    size = float(np.abs(right).max(initial=0.0))
    apart = float(np.abs(left - right).max(initial=0.0))
    return apart / size if size else (0.0 if not apart else math.inf)
