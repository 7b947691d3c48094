"""Which of several layers that nothing else tells apart have names alike on both sides."""

import itertools
import re
from collections.abc import Sequence

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MOST = 6
"""Of more names the permutations are too many to look at."""
_EQUAL, _SHORTENED, _INITIAL = 4, 3, 2
_LEAST_LETTERS = 3


def in_order_of_names(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """`others` in the order in which their words fit `names` best; as they are where no other order fits better.

    `to_skip` and `to_residual` are `horiz_skip` and `horiz_resid`; what all of them share says nothing.
    """
    if not 1 < len(names) <= _MOST:
        return list(others)
    fit = {(one, other): _alike(one, other) for one in names for other in others}
    orders = itertools.permutations(others)  # the given one comes first, and stays where another fits as well
    return list(max(orders, key=lambda order: sum(fit[pair] for pair in zip(names, order, strict=True))))


def _alike(one: str, other: str) -> int:
    words = [[word.lower() for word in _WORD.findall(name)] for name in (one, other)]
    return sum(max((_same(word, theirs) for theirs in words[1]), default=0) for word in words[0])


def _same(one: str, other: str) -> int:
    short, long = sorted((one, other), key=len)
    if short == long:
        return _EQUAL
    if not long.startswith(short):
        return 0
    return _SHORTENED if len(short) >= _LEAST_LETTERS else _INITIAL if len(short) == 1 else 0
