"""A statement of the reference before or behind others of its block, where the port has it.

Both sides have the same statements, and a value is taken before another one changes it on one side, behind that on the
other. The reference's own statement is moved, however the port spells it.
"""

import ast
import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twinalign.replay.aligned_code import Code, Difference, Place, line_of, own_attribute
from twinalign.replay.code_text import AS_WRITTEN, shortened
from twinalign.replay.likeness import ratio, words_of
from twinalign.replay.line_spelling import OF_REFERENCE
from twinalign.replay.moved_statements import changed_by
from twinalign.replay.port_lines import LinesVariant

_FARTHEST = 4
"""So many statements are crossed at most."""
_MOST = 24
_ALIKE = 0.3
"""Statements of both sides with this share of equal words may be the same one."""
_PLAIN = ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.If, ast.For
_BLOCKS = "body", "orelse"


@dataclasses.dataclass(frozen=True)
class _Move:
    """From where in a block a statement goes to where, and how many others it crosses."""

    block: list[ast.stmt]
    at: int
    to: int
    far: int

    @property
    def is_down(self) -> bool:
        return self.to > self.at

    @property
    def both(self) -> list[ast.stmt]:
        """The statement, and the farthest one that it crosses."""
        return [self.block[self.at], self.block[self.to - 1 if self.is_down else self.to]]


def reordered(lines: Sequence[LinesVariant]) -> Iterator[LinesVariant]:
    """The reference with one statement where the port has it, of all functions in which lines differ; near ones first.

    Left out is what would change nothing, or would read a name that has nothing yet.
    """
    pairs = {(id(one.lines[0].theirs), id(one.lines[0].ours)): one for one in lines if one.lines}
    found = [(move, one) for one in pairs.values() for move in _moves(one.lines[0].theirs)]
    for move, one in sorted(found, key=lambda both: both[0].far)[:_MOST]:
        theirs, ours = one.lines[0].theirs, one.lines[0].ours
        anchor, mine = _anchor(theirs, move), _partners(ours, move.both, one.names)
        if anchor is None or mine is None or (mine[0].lineno > mine[1].lineno) is not move.is_down:
            continue
        if not _are_in_one_block(ours, mine):
            continue
        moved = move.both[0]
        made: Any = copy.copy(moved)
        setattr(made, OF_REFERENCE, True)
        setattr(made, AS_WRITTEN, mine[0])
        made.lineno, made.end_lineno = mine[0].lineno, mine[0].end_lineno
        left_out = Difference(theirs, ours, (id(moved), "instead"), moved, None)
        sides = ("behind", "before") if move.is_down else ("before", "behind")
        where = f"{sides[0]} `{shortened(mine[1])}`, in the reference {sides[1]} it"
        detail = f"`{shortened(mine[0])}` stands {where}, {line_of(ours, mine[0])} and {line_of(theirs, moved)}"
        yield dataclasses.replace(one, detail=detail, lines=(left_out, Difference(theirs, ours, anchor, None, made)))


def _anchor(code: Code, move: _Move) -> Place | None:
    """Where the statement is put; None where a block that has no place behind it ends there."""
    if move.to < len(move.block):
        return id(move.block[move.to]), "before"
    owner = next((one for one in ast.walk(code.tree) if getattr(one, "body", None) is move.block), None)
    return (id(owner), "behind") if owner is not None else None


def _moves(code: Code) -> Iterator[_Move]:
    names = _Names(code)
    for node in ast.walk(code.tree):
        for block in (getattr(node, field, None) for field in _BLOCKS):
            yield from _moves_in(block, names) if isinstance(block, list) else ()


def _moves_in(block: list[ast.stmt], names: "_Names") -> Iterator[_Move]:
    for at in range(len(block)):
        for far in range(1, _FARTHEST + 1):
            down, up = block[at + 1 : at + 1 + far], block[max(0, at - far) : at]
            if len(down) == far and names.allow(block[at], down, is_down=True):
                yield _Move(block, at, at + 1 + far, far)
            if len(up) == far > 1 and names.allow(block[at], up, is_down=False):
                yield _Move(block, at, at - far, far)


class _Names:
    """What each statement of a function reads and changes."""

    def __init__(self, code: Code) -> None:
        every = [one for one in ast.walk(code.tree) if isinstance(one, ast.stmt) and one is not code.tree]
        self._changed, self._read = ({one: of(one) for one in every} for of in (changed_by, _read))
        self._given = {one.arg for one in ast.walk(code.tree.args) if isinstance(one, ast.arg)}

    def allow(self, statement: ast.stmt, crossed: Sequence[ast.stmt], is_down: bool) -> bool:
        """Whether it makes a difference that a statement goes across others, and what is read then is still there."""
        if not all(isinstance(one, _PLAIN) for one in (statement, *crossed)):
            return False
        mine, read = self._changed[statement], self._read[statement]
        farthest = crossed[-1] if is_down else crossed[0]
        if not (mine & self._read[farthest] or read & self._changed[farthest]):
            return False  # it need not go so far
        needed = [self._read[one] & mine if is_down else self._changed[one] & read for one in crossed]
        first = min(one.lineno for one in (statement, *crossed))
        before = (names for one, names in self._changed.items() if one.lineno < first)
        return set().union(*needed) <= self._given.union(*before)


def _read(node: ast.AST) -> set[str]:
    read = [one for one in ast.walk(node) if isinstance(getattr(one, "ctx", None), ast.Load)]
    names = {one.id for one in read if isinstance(one, ast.Name)} - {"self"}
    return names | {one.attr for one in read if isinstance(one, ast.Attribute)}


def _are_in_one_block(code: Code, statements: Sequence[ast.stmt]) -> bool:
    """Whether one of these statements runs behind the other, and not in another branch."""
    blocks = [getattr(node, field, None) for node in ast.walk(code.tree) for field in _BLOCKS]
    return any(isinstance(block, list) and all(one in block for one in statements) for block in blocks)


def _names_in(statement: ast.stmt, names: Mapping[str, Any]) -> list[str]:
    words = [word for word in words_of(statement) if word.isidentifier() and word != "self"]
    return [str(names.get(word, word)) for word in words]


def _layers_in(statement: ast.stmt, names: Mapping[str, Any]) -> set[str]:
    """What a statement calls of its own object, such as layers."""
    called = (own_attribute(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call))
    return {str(names.get(name, name)) for name in called if name is not None}


def _partners(ours: Code, wanted: Sequence[ast.stmt], names: Mapping[str, Any]) -> list[Any] | None:
    """The port's statements that are likest to the reference's, each another one; None where one has none.

    `names`: what the port's layer has → what that is called in the reference.
    """
    own = [one for one in ast.walk(ours.tree) if isinstance(one, _PLAIN)]
    found = list[Any]()
    for statement in wanted:
        words, layers = _names_in(statement, {}), _layers_in(statement, {})
        alike = [one for one in own if one not in found and _layers_in(one, names) == layers]
        scored = [(ratio(words, _names_in(one, names), _ALIKE), one) for one in alike]
        share, best = max(scored, key=lambda item: item[0], default=(0.0, None))
        if share < _ALIKE:
            return None
        found.append(best)
    return found
