"""Which values of the reference's a place of the port may take, in the port's layout."""

from __future__ import annotations

import ast
import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from twinalign.replay.known_arrays import laid_out, nearest_layout
from twinalign.replay.likeness import ratio, spelled_words, words_of
from twinalign.replay.noted_expressions import Noted, Visited
from twinalign.replay.orders_of_values import OrdersOfValues

_NEAREST, _LIKEST = 3, 1
"""So many values of the reference's are tried in a place: those nearest to the port's, and those written alike."""
_OFTENER = 2
"""A place has at most so many times as many values as the reference's: a loop may go on for longer with wrong ones."""


@dataclasses.dataclass(frozen=True)
class Other:
    """What the reference has in a place of its code: where, and the values one after the other."""

    file: str
    line: int
    text: str
    values: Sequence[np.ndarray]
    is_absent: bool = False
    """Whether the port has its values nowhere."""


Offer = tuple[Other, list[np.ndarray]]


class Offers:
    """What each place of the port may take.

    Args:
        visited, noted: the port's functions, and their values.
        others: what the reference has.
        orders: in which order the port has that.
    """

    def __init__(self, visited: Visited, noted: Noted, others: Sequence[Other], orders: OrdersOfValues) -> None:
        self._visited, self._noted, self._others, self._orders = visited, noted, others, orders

    def of(self, number: int, nearest: int = _NEAREST) -> list[Offer]:
        """The reference's values that a place may take, the likeliest first; so many of the `nearest`."""
        ours = [self._noted.table.arrays[one] for one in self._noted.places[number]]
        words = _words_of_value(self._visited.places[number].node)
        near: list[tuple[bool, float, float, Other, Sequence[np.ndarray], int]] = []
        seen = set[tuple[int, ...]]()
        arranged = self._orders.of(self._visited.places[number].code, len(ours))
        for other in self._others:
            key = tuple(map(id, other.values[: len(ours)]))
            if len(other.values) * _OFTENER < len(ours) or key in seen:
                continue
            seen.add(key)
            values = (arranged.of(other.values) if arranged is not None else []) or other.values
            made = nearest_layout(ours, values, values is other.values)
            if made is not None and 0.0 < made[0] < math.inf:
                near.append((not other.is_absent, -made[1], made[0], other, values, made[2]))
        near.sort(key=lambda one: one[:3])
        alike = sorted(near, key=lambda one: -_alike(words, spelled_words(one[3].text)))
        if all(array.size == 1 for array in ours):  # how near one number is to another says little
            chosen = [one for both in zip(alike[:_NEAREST], near[:_NEAREST], strict=False) for one in both]
        else:
            chosen = [*near[:nearest], *alike[:_LIKEST]]
        different = {id(one[3]): one[3:] for one in chosen}.values()
        return [(other, laid_out(ours, values, layout)) for other, values, layout in different]


def _words_of_value(node: ast.AST) -> list[str]:
    """The words of an expression, or of what a statement changes a name to."""
    return words_of(ast.BinOp(node.target, node.op, node.value) if isinstance(node, ast.AugAssign) else node)


def _alike(words: Sequence[str], others: Sequence[str]) -> float:
    """How alike two expressions are by their words, of which the second may have many more."""
    return ratio(words, others) + (Counter(words) & Counter(others)).total() / max(len(words), 1)
