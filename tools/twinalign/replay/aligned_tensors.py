"""Which of the port's tensors stand for those of the reference where a call takes or returns another number of them.

A port's attention returns its keys and values where the reference keeps them in an object, or is given a mask that the
reference does without. By their places, the reference's bias would then be taken for the port's keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Likeness = Callable[[int, int], int]
"""How much a tensor of the port, by its place, is like one of the reference; 0 if it cannot stand for it."""


def aligned(number: int, wanted: int, likeness: Likeness) -> list[int]:
    """Places of the port's tensors: first those that stand for the reference's, in its order, then the others.

    They keep their order, as arguments do. Where the port has fewer, or one of the reference's has no tensor that can
    stand for it, all stay where they are.
    """
    as_they_are = list(range(number))
    if not 0 < wanted < number:
        return as_they_are
    best: list[tuple[int, list[int]] | None] = [(0, [])] * (number + 1)
    for theirs in range(wanted):
        # best[n] is what the first n tensors of the port give for the first of the reference's.
        before, best = best, [None]
        for ours in range(number):
            known, like = before[ours], likeness(ours, theirs)
            taken = (known[0] + like, [*known[1], ours]) if known is not None and like else None
            if best[-1] is None or (taken is not None and taken[0] > best[-1][0]):
                best.append(taken)
            else:
                best.append(best[-1])
    found = best[-1]
    if found is None:
        return as_they_are
    return [*found[1], *(place for place in as_they_are if place not in found[1])]


def in_order(order: Sequence[int], places: Sequence[Any]) -> list[int]:
    """Where each of these places, which count tensors as they were, is in a new order."""
    return [order.index(place) for place in places]
