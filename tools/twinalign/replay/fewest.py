"""The fewest of several things that do together what all of them do."""

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def fewest(items: Sequence[_Item], holds: Callable[[Sequence[_Item]], bool]) -> list[_Item]:
    """A part of the items that holds as the whole does, and of which no item can be left out (Junker, 2004).

    Of several such parts it is the one with the earlier items.
    """

    def needed(kept: Sequence[_Item], rest: Sequence[_Item], is_new: bool) -> list[_Item]:
        if is_new and holds(kept):
            return []
        if len(rest) == 1:
            return list(rest)
        left, right = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        of_right = needed([*kept, *left], right, True)
        of_left = needed([*kept, *of_right], left, bool(of_right))
        return [*of_left, *of_right]

    found = needed([], list(items), False) if items else []
    for item in list(found):  # one may have been needed beside others alone that are left out by now
        others = [other for other in found if other is not item]
        if others and holds(others):
            found = others
    return found


def without_groups(
    items: Sequence[_Item], holds: Callable[[Sequence[_Item]], bool], group: Callable[[_Item], Hashable]
) -> list[_Item]:
    """The items without each group that can be left out as a whole: its items may hold together alone."""
    kept = list(items)
    for one in dict.fromkeys(map(group, items)):
        rest = [item for item in kept if group(item) != one]
        if rest and len(rest) < len(kept) and holds(rest):
            kept = rest
    return kept


_MOST_IN_PAIRS = 12


def fewest_by_twos(items: Sequence[_Item], holds: Callable[[Sequence[_Item]], bool]) -> list[_Item]:
    """`fewest`, of which no two items can be left out together either: a factor that stands in the one or the other."""
    kept, again = fewest(items, holds), True
    while again and 2 < len(kept) <= _MOST_IN_PAIRS:
        again = False
        for two in itertools.combinations(range(len(kept)), 2):
            rest = [one for at, one in enumerate(kept) if at not in two]
            if holds(rest):
                kept, again = rest, True
                break
    return kept
