"""The place in the port's code that goes wrong: with the reference's value there, all that follows is right.

Both sides had the same inputs. Each expression of the port whose value the reference nowhere has is given a value of
the reference's, the first that is computed first, until what comes out is right.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code
from twinalign.replay.code_text import shortened
from twinalign.replay.guarded import LONGEST, guarded
from twinalign.replay.known_arrays import SAME, KnownArrays, relative_distance, tells
from twinalign.replay.noted_expressions import Noted, Place, Visited, numbers_of
from twinalign.replay.offered_values import Offer, Offers, Other
from twinalign.replay.orders_of_values import OrdersOfValues
from twinalign.replay.runs_of_numbers import RunsOfNumbers
from twinalign.replay.slices import FAR

_BEFORE = 0.5
"""Of the time for a place, at least, for those before one that is found."""
_MOST_TURNS = 16
"""So many combinations are tried of the items of a tuple."""
_MOST_OF_SIZES = 4
_FIRST, _NEAREST = 6, 3
"""What so many places are made of that go wrong first is looked at, if none of them is where it begins."""
Like = Callable[[np.ndarray, Any], Any]


@dataclasses.dataclass(frozen=True)
class Found:
    """A place of the port that is right with the reference's values in its parts: itself, or items of a tuple.

    Attributes:
        parts: each place that takes values, what the reference has there, and its values in the port's layout.
        is_where: whether all that it is made of is right, so that it goes wrong just there.
        calls_object: whether it calls an object, or a method of one, that its function was given or has made.
    """

    place: Place
    parts: Sequence[tuple[Place, Other, Sequence[np.ndarray]]]
    is_where: bool
    calls_object: bool = False


class Trials:
    """Places of the port that may take the reference's values.

    Args:
        visited: the port's functions.
        noted: their values.
        arrays, places: the reference's, as `read_values` has them.
        like: as `Backend.to_tensor_like`.
        taken: seconds of processor time for these values; with others the port may run for ever.
    """

    def __init__(
        self,
        visited: Visited,
        noted: Noted,
        arrays: Sequence[np.ndarray],
        places: Sequence[Mapping[str, Any]],
        like: Like,
        taken: float = 0.0,
    ) -> None:
        self._visited, self._noted, self._like = visited, noted, like
        self._longest = taken + LONGEST
        self._returning: dict[int, bool] = {}
        self._going_wrong: dict[int, bool] = {}
        self._numbers = {id(place.node): number for number, place in enumerate(visited.places)}
        codes = {id(place.code): place.code for place in visited.places}.values()
        self._parents = {
            id(child): parent
            for code in codes
            for parent in ast.walk(code.tree)
            for child in ast.iter_child_nodes(parent)
        }
        ours = KnownArrays(noted.table.arrays)
        known_ours = {number for number, array in enumerate(arrays) if array in ours}
        theirs = KnownArrays(arrays)
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
            if tells([arrays[n] for n in one["values"]])
        ]
        self._theirs = [(one["file"], one["line"], one["text"], [arrays[n] for n in one["values"]]) for one in places]
        self._runs = RunsOfNumbers([one[3] for one in self._theirs])
        self._departing: dict[int, int | None] = {}
        self._others.sort(key=lambda other: other.text.isidentifier())  # what is computed tells more than its name
        orders = OrdersOfValues(visited, noted, theirs.place_of, arrays, [one["values"] for one in places])
        self._offers = Offers(visited, noted, self._others, orders)

    def values_of(self, code: Code, before: ast.AST | None = None) -> Iterator[tuple[ast.AST, list[np.ndarray]]]:
        """What a function of the port has values for, and these, one after the other.

        `before`: as far as this part, until it goes wrong: in a loop that makes all wrong.
        """
        until = self._begins(self._numbers[id(before)]) if id(before) in self._numbers else math.inf
        for number, values in self._noted.places.items():  # in the order in which they had the first
            if (place := self._visited.places[number]).code is code and values:
                known = zip(values, self._noted.times[number], strict=True)
                arrays = [self._noted.table.arrays[value] for value, time in known if time < until]
                if arrays:
                    yield place.node, arrays
                if place.node is before:
                    return

    def goes_wrong_before(self, node: ast.AST, other: ast.AST) -> bool:
        """Whether a part of a function of the port's has a value that the reference lacks before another has one."""
        numbers = [self._numbers.get(id(one), -1) for one in (node, other)]
        if any(number not in self._noted.places for number in numbers):
            return False
        return self._begins(numbers[0]) < self._begins(numbers[1])

    def lacks(self, code: Code, node: ast.expr) -> bool:
        """Whether the port has the values nowhere that a function of the reference's has in a part of it."""
        place = code.file, node.lineno, shortened(node)
        return any(one.is_absent for one in self._others if (one.file, one.line, one.text) == place)

    def values_there(self, code: Code, text: str) -> list[list[np.ndarray]]:
        """What a function of the reference's has in each place that reads so."""
        first, last = code.tree.lineno, code.tree.end_lineno or 0
        return [
            values
            for file, line, other, values in self._theirs
            if file == code.file and first <= line <= last and other == text
        ]

    def found(self, is_right: Callable[[], bool], distances: Mapping[int, int], seconds: float) -> list[Found]:
        """Places with each of which all is right, the one where it begins first.

        Args:
            distances: of `slices.distances`; what has none is no place, if anything has one.
            seconds: of processor time.
        """
        every, until = self._absent(distances), time.process_time() + seconds
        offered = functools.cache(self._offered_together)

        def in_turns(places: Sequence[int], turns: Iterable[int]) -> Iterator[tuple[int, dict[int, Offer]]]:
            for turn, number in itertools.product(turns, places):
                if time.process_time() > until:
                    return
                if turn < len(together := offered(number)):
                    yield number, together[turn]

        def first(tried: Iterable[tuple[int, dict[int, Offer]]]) -> tuple[int, dict[int, Offer]] | None:
            return next((one for one in tried if self._is_right_with(one[1], is_right)), None)

        best = first(in_turns(every, range(_MOST_TURNS)))
        if best is None:  # what ends too early has values that the reference has, too
            until = time.process_time() + _BEFORE * seconds
            made = self._made_into([*self._nearest(distances), *every[:_FIRST]])
            further = ((one, {one: offer}) for one in made for offer in self._offers.of(one, _MOST_TURNS))
            best = first(itertools.takewhile(lambda one: time.process_time() < until, further))
        if best is None:
            return []
        until = max(until, time.process_time() + _BEFORE * seconds)
        # What goes wrong before may be where it begins; where nothing does, as far as one can tell, what is computed
        # before, the values of which the reference has elsewhere.
        begins, is_where, mending = self._begins(best[0]), self._goes_wrong(best[0]), [best]
        for number in [one for one in reversed(every) if one != best[0]]:
            is_before = not is_where and self._begins(number) <= begins
            tried = in_turns([number], range(_MOST_TURNS))
            if is_before or self._begins(number) > begins:
                other = first(one for one in tried if is_before or self._changes(one[1], begins))
                mending += [other] if other is not None else []
        return [self._found(*one) for one in reversed(mending)]

    def _nearest(self, distances: Mapping[int, int]) -> list[int]:
        """The places nearest to what is wrong: where the reference has all values, one of them is not used as there."""
        far = {number: distances.get(id(self._visited.places[number].node), FAR) for number in self._noted.places}
        return sorted((number for number in far if far[number] < FAR), key=far.__getitem__)[:_NEAREST]

    def _made_into(self, places: Sequence[int]) -> list[int]:
        """Where values that the reference has were computed, which the first of these places are made of."""
        made_by: dict[int, int] = {}
        for number, values in self._noted.places.items():
            for value in values:
                made_by.setdefault(value, number)
        inside = (id(one) for number in places for one in ast.walk(self._visited.places[number].node))
        known = (number for one in inside if self._is_right(number := self._numbers.get(one, -1)))
        return list(dict.fromkeys(made_by[self._noted.places[one][0]] for one in known if not self._is_size(one)))

    def _found(self, number: int, together: Mapping[int, Offer]) -> Found:
        parts = [(self._visited.places[one], *offer) for one, offer in together.items()]
        calls_object = any(map(self._calls_object, together))
        return Found(self._visited.places[number], parts, self._goes_wrong(number), calls_object)

    def _changes(self, together: Mapping[int, Offer], until: float) -> bool:
        """Whether places take other values than their own until then."""
        table = self._noted.table.arrays
        return any(
            time < until and relative_distance(table[own].reshape(-1), other.reshape(-1)) > SAME
            for number, (_, values) in together.items()
            for own, time, other in zip(self._noted.places[number], self._noted.times[number], values, strict=False)
        )

    def _absent(self, wanted: Mapping[int, int]) -> list[int]:
        """Places whose values the reference lacks, of those with the same values the first, and tuples of such: what
        has such a value first before others; behind them what is used in right values alone, as far as is known, and
        small whole numbers, which are sizes and places as a rule."""
        found: dict[tuple[int, ...], int] = {}
        for number, values in self._noted.places.items():
            if wanted and id(self._visited.places[number].node) not in wanted:
                continue
            if not self._known.issuperset(values) or self._departs(number) is not None:
                found.setdefault(tuple(values), number)
            elif any(not self._known.issuperset(self._noted.places[one]) for one in self._items(number)):
                found[(-number,)] = number

        def late(number: int) -> tuple[bool, float]:
            place = self._visited.places[number]
            return self._is_size(number) or self.is_used_rightly(place.code, place.node), self._begins(number)

        return sorted(found.values(), key=late)

    def is_used_rightly(self, code: Code, node: ast.AST) -> bool:
        """Whether what a function makes of a part of it has the reference's values, as far as is known."""
        around = self._parents.get(id(node))
        while around is not None and id(around) not in self._numbers:
            around = self._parents.get(id(around))
        return (around is not None and self._is_right(self._numbers[id(around)])) or self.returns_rightly(code)

    def lateness(self, code: Code, node: ast.AST) -> int:
        """How late an edit of a part of a function is tried: 2 if that is used rightly, 1 if it is made of what is
        wrong before, else 0."""
        if self.is_used_rightly(code, node):
            return 2
        while id(node) in self._parents and not self._noted.places.get(self._numbers.get(id(node), -1)):
            node = self._parents[id(node)]
        number = self._numbers.get(id(node), -1)
        is_noted = bool(self._noted.places.get(number))
        return int(is_noted and not self._is_known(number) and not self._goes_wrong(number))

    def returns_rightly(self, code: Code) -> bool:
        """Whether a function returns the reference's values, which no gradient flows through, and changes nothing."""
        if id(code) not in self._returning:
            returned = [one.value for one in code.nodes if isinstance(one, ast.Return) and one.value is not None]
            numbers = [self._numbers.get(id(one), -1) for one in returned]
            is_value = bool(numbers) and self._noted.with_gradient.isdisjoint(numbers) and not _has_effects(code)
            self._returning[id(code)] = is_value and all(map(self._is_right, numbers))
        return self._returning[id(code)]

    def _is_right(self, number: int) -> bool:
        """Whether the reference has the values of a place, and they are not such as anything has by chance."""
        if not (values := self._noted.places.get(number)):
            items = self._items(number) if number >= 0 else []
            return bool(items) and all(map(self._is_right, items))
        return self._is_known(number) and tells([self._noted.table.arrays[one] for one in values])

    def _is_known(self, number: int) -> bool:
        """Whether the reference has the values of a place, if only by chance."""
        return self._known.issuperset(self._noted.places[number]) and self._departs(number) is None

    def _departs(self, number: int) -> int | None:
        """Which of a place's numbers is the first that none of the reference's runs has there; None if one has all."""
        if number not in self._departing:
            values = [self._noted.table.arrays[one] for one in self._noted.places[number]]
            self._departing[number] = self._runs.departs(values)
        return self._departing[number]

    def _begins(self, number: int) -> float:
        """When a place has its first value that the reference lacks: in a loop, what is wrong makes all wrong."""
        times = zip(self._noted.places[number], self._noted.times[number], strict=True)
        departs = self._departs(number) if self._noted.places[number] else None
        absent = (time for at, (value, time) in enumerate(times) if value not in self._known or at == departs)
        return next(absent, min(map(self._begins, self._items(number)), default=math.inf))

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

    def _offered_together(self, number: int) -> list[dict[int, Offer]]:
        """What a place may take, alone and with those where the same is written, or several items of a tuple."""
        if self._noted.places[number]:
            alone = [{number: offer} for offer in self._offers.of(number)]
            twins = self._twins(number)
            return [both for one in alone for both in (one, *([dict.fromkeys(twins, one[number])] if twins else ()))]
        items = self._items(number)
        choices = [[None, *self._offers.of(one)] for one in items]
        every = itertools.islice(itertools.product(*choices), _MOST_TURNS * _MOST_TURNS)
        made = [{one: offer for one, offer in zip(items, choice, strict=True) if offer is not None} for choice in every]
        return [one for one in made if len(one) > 1][:_MOST_TURNS]

    def _twins(self, number: int) -> list[int]:
        """A place and those of its function where the same is computed again, of the same values; none if it is one."""
        place, values = self._visited.places[number], self._noted.places[number]
        if not isinstance(place.node, (ast.Call, ast.BinOp)):
            return []
        alike = (one for one, other in self._noted.places.items() if other == values)
        written = ast.dump(place.node)
        twins = [
            one
            for one in alike
            if (at := self._visited.places[one]).code is place.code and ast.dump(at.node) == written
        ]
        return twins if len(twins) > 1 else []

    def _is_right_with(self, together: Mapping[int, Offer], is_right: Callable[[], bool]) -> bool:
        values = {number: made for number, (_, made) in together.items()}
        exchanged = Exchanged(values, self._like)
        with self._visited.by(exchanged):
            try:
                with guarded(self._longest):
                    found = is_right()
                # A loop that goes on for longer with wrong values ends with right ones as the reference's does.
                return found and all(
                    len(made) >= len(self._noted.places[number]) or exchanged.times[number] <= len(made)
                    for number, (_, made) in together.items()
                )
            except Exception:  # the user's code may not take these
                return False

    def _goes_wrong(self, number: int) -> bool:
        """Whether the reference has the values of all names in an expression, until it lacks the expression's."""
        if number in self._going_wrong:
            return self._going_wrong[number]
        inside = {id(one) for one in ast.walk(self._visited.places[number].node)}
        begins = self._begins(number)
        self._going_wrong[number] = all(
            self._known.issuperset(values) or self._begins(other) > begins
            for other, values in self._noted.places.items()
            if isinstance(node := self._visited.places[other].node, (ast.Name, ast.Attribute)) and id(node) in inside
        )
        return self._going_wrong[number]

    def _calls_object(self, number: int) -> bool:
        """Whether an expression calls what its function was given or has made, or a method of it, but for values."""
        place = self._visited.places[number]
        names = [one for one in place.code.nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
        own = {one.id for one in names} | {one.arg for one in place.code.tree.args.args} - {"self"}
        for call in (one for one in ast.walk(place.node) if isinstance(one, ast.Call)):
            holder = call.func.value if isinstance(call.func, ast.Attribute) else call.func
            root: ast.AST = holder
            while isinstance(root, ast.Attribute):
                root = root.value
            if getattr(root, "id", "") in own and not self._noted.places.get(self._numbers.get(id(holder), -1)):
                return True
        return False


class Exchanged:
    """Gives places other values, one after the other and from the first again, as a visitor; `like`: as
    `Backend.to_tensor_like`."""

    def __init__(self, values: Mapping[int, Sequence[np.ndarray]], like: Like) -> None:
        self._values, self._like = values, like
        self.times = Counter[int]()

    def __call__(self, place: int, value: Any) -> Any:
        if (values := self._values.get(place)) is None:
            return value
        self.times[place] += 1
        array = values[(self.times[place] - 1) % len(values)]
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


def _has_effects(code: Code) -> bool:
    """Whether a function changes more than its own names."""
    stored = (one for one in code.nodes if isinstance(getattr(one, "ctx", None), ast.Store))
    return any(isinstance(one, (ast.Attribute, ast.Subscript)) for one in stored)
