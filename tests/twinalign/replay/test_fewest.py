"""The fewest of several things that hold together."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from twinalign.replay.fewest import fewest, fewest_by_twos, without_groups


def test_nothing_of_nothing() -> None:
    assert fewest([], lambda some: True) == []


@pytest.mark.parametrize("seed", range(20))
def test_what_is_needed_is_kept_and_nothing_else(seed: int) -> None:
    draw = random.Random(seed)
    items = list(range(draw.randint(1, 17)))
    needed = set(draw.sample(items, draw.randint(1, min(4, len(items)))))
    asked: list[int] = []

    def holds(some: object) -> bool:
        asked.append(1)
        return needed <= set(some)  # type: ignore[call-overload]

    assert fewest(items, holds) == sorted(needed)
    assert len(asked) <= 2 * len(needed) * len(items).bit_length()


def test_of_two_parts_that_hold_no_item_can_be_left_out() -> None:
    parts = [{1, 4}, {2, 3, 5}]
    found = fewest(range(6), lambda some: any(part <= set(some) for part in parts))
    assert set(found) in parts
    left = [set(some) for some in itertools.combinations(found, len(found) - 1)]
    assert not any(part <= some for part in parts for some in left)


def test_two_items_that_only_hold_together_are_left_out_together() -> None:
    def holds(some: object) -> bool:
        there = set(some)  # type: ignore[call-overload]
        return {0, 3} <= there and (1 in there) == (4 in there)

    assert set(fewest(range(6), holds)) >= {0, 1, 3, 4}
    assert fewest_by_twos(range(6), holds) == [0, 3]


def test_what_only_holds_together_is_left_out_as_a_group() -> None:
    """Three lines that build a list and one that is wrong: the three run together or not at all."""

    def holds(some: Sequence[str]) -> bool:
        of_list = sum(one.startswith("list") for one in some)
        return of_list in (0, 3) and "wrong" in some

    items = ["list, made", "list, filled", "wrong", "list, joined"]
    assert len(fewest_by_twos(items, holds)) == 4
    assert without_groups(items, holds, lambda one: one[:4]) == ["wrong"]
    assert without_groups(items, holds, lambda one: 0) == items
