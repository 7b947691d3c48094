"""The part of what is taken from the reference that is enough: it says more than a whole expression."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from twinalign.replay.grafts import Graft, made_once
from twinalign.replay.helper_edits import BothEdits, HelperEdit
from twinalign.replay.likeness import ratio, words_of
from twinalign.replay.small_edits import expressions

_MOST = 8
_ALIKE = 0.6
"""Share of equal words that two operations have at least."""
_OPENED = 2
"""So often are names opened."""


def smallest(edit: Any, is_right: Callable[[HelperEdit], bool]) -> Any:
    """A part of what an edit takes from the reference, or two, with which all is right as well; else the edit."""
    if not isinstance(edit, Graft):
        return edit
    parts = list(itertools.islice(_parts(edit), _MOST))
    inside = {id(one): set(expressions([one.old])) for one in parts}
    two = itertools.combinations(sorted(parts, key=lambda one: (one.old.lineno, one.old.col_offset)), 2)
    apart = ((one, other) for one, other in two if inside[id(one)].isdisjoint(inside[id(other)]))
    pairs = [BothEdits(edit.code, one.old, one.new, other) for one, other in itertools.islice(apart, _MOST)]
    return next(filter(is_right, sorted([*parts, *pairs], key=_size)), edit)


def _size(edit: HelperEdit) -> int:
    return sum(len(ast.unparse(side)) for old, new in edit.changes.items() for side in (old, new))


def _parts(graft: Graft) -> Iterator[HelperEdit]:
    """Calls of the same with other arguments, and operations that are alike, the smallest first."""
    theirs = [one for one in expressions([graft.new]) if one is not graft.new]
    ours = [one for one in _opened(graft) if one is not graft.old]
    written = set(map(ast.unparse, theirs))
    found = [
        HelperEdit(graft.code, old, ast.fix_missing_locations(ast.copy_location(new, old)))
        for old, new in itertools.product(ours, theirs)
        if ast.unparse(old) not in written and _are_partners(old, new)
    ]
    yield from sorted(found, key=_size)


def _opened(graft: Graft) -> list[ast.expr]:
    """The parts of what an edit replaces, and of what its names are made of."""
    made_of, found = made_once(graft.code), [*expressions([graft.old])]
    waiting = found
    for _ in range(_OPENED):
        inner = [made_of[one.id] for one in waiting if isinstance(one, ast.Name) and one.id in made_of]
        waiting = [one for one in expressions(inner) if one not in found]
        found = [*found, *waiting]
    return found


def _are_partners(one: ast.expr, other: ast.expr) -> bool:
    words = words_of(one), words_of(other)
    if words[0] == words[1]:
        return False
    if isinstance(one, ast.Call) and isinstance(other, ast.Call):
        return words_of(one.func) == words_of(other.func)
    if not isinstance(one, ast.BinOp) or not isinstance(other, ast.BinOp):
        return False
    return type(one.op) is type(other.op) or ratio(*words) >= _ALIKE
