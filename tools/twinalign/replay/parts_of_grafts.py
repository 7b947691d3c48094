"""The part of what is taken from the reference that is enough: it says more than a whole expression."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twinalign.replay.aligned_code import Code
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
    depths = opened(edit.code, edit.old)
    parts = list(itertools.islice(_parts(edit, depths), _MOST))
    inside = {id(one): set(expressions([one.old])) for one in parts}
    two = itertools.combinations(sorted(parts, key=lambda one: (one.old.lineno, one.old.col_offset)), 2)
    apart = ((one, other) for one, other in two if inside[id(one)].isdisjoint(inside[id(other)]))
    pairs = [BothEdits(edit.code, one.old, one.new, other) for one, other in itertools.islice(apart, _MOST)]

    def late(one: HelperEdit) -> tuple[int, int]:
        """What a name is made of says more than what is made of the name."""
        return max(-depths[old] for old in one.changes), _size(one)

    return next(filter(is_right, sorted([*parts, *pairs], key=late)), edit)


def _size(edit: HelperEdit) -> int:
    return sum(len(ast.unparse(side)) for old, new in edit.changes.items() for side in (old, new))


def _parts(graft: Graft, ours: Iterable[ast.AST]) -> Iterator[HelperEdit]:
    """Calls of the same with other arguments, and operations that are alike, the smallest first."""
    theirs = [one for one in expressions([graft.new]) if one is not graft.new]
    written, made_of = set(map(ast.unparse, theirs)), made_once(graft.code)
    found = []
    for old, new in itertools.product(ours, theirs):
        if (
            old is graft.old
            or not isinstance(old, ast.expr)
            or ast.unparse(old) in written
            or not _are_partners(old, new)
        ):
            continue
        names = {one.id for one in ast.walk(new) if isinstance(one, ast.Name)} & made_of.keys()
        if not any(old in expressions([made_of[name]]) for name in names):  # which has no value there yet
            found.append(HelperEdit(graft.code, old, ast.fix_missing_locations(ast.copy_location(new, old))))
    yield from sorted(found, key=_size)


def opened(code: Code, node: ast.AST) -> dict[ast.AST, int]:
    """The parts of a part of a function, 0, and of what its names are made of, 1 and more."""
    made_of = made_once(code)
    found: dict[ast.AST, int] = dict.fromkeys(expressions([node]), 0)
    for depth in range(_OPENED):
        names = [one for one, at in found.items() if at == depth and isinstance(one, ast.Name) and one.id in made_of]
        inner = expressions([made_of[one.id] for one in names])
        found |= {one: depth + 1 for one in inner if one not in found}
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
