"""Statements that the port has at another place than the reference: what one side alone has is what the other lacks."""

import ast
import itertools
from collections.abc import Sequence
from typing import Any

from twinalign.replay.aligned_code import Difference, line_of
from twinalign.replay.code_text import shortened
from twinalign.replay.likeness import ratio, words_of
from twinalign.replay.opened_blocks import inner
from twinalign.replay.port_lines import LinesVariant, together

_SAME = 0.75
"""Statements of which this share of the words is equal, in order, are one that has moved."""
_MOST_IN_OTHER_WORDS = 24


def moved(lines: Sequence[LinesVariant]) -> list[LinesVariant]:
    """What has moved, as the port's lines of `lines_of` that belong together; each says across what it has moved."""
    added = [one for one in lines if one.lines[0].old is None]
    lacking = [one for one in lines if one.lines[0].new is None]
    found = []
    for one in added:
        new = one.lines[0].new
        statements = [inner(statement) for statement in (new.body if isinstance(new, ast.Module) else [new])]
        left = [other for other in lacking if other.lines[0].theirs is one.lines[0].theirs]
        partners = list[LinesVariant]()
        for statement in statements:
            best = max(left, key=lambda other: _likeness(other, statement), default=None)
            if best is not None and _likeness(best, statement) >= _SAME:
                partners.append(best)
                left.remove(best)
        if len(partners) == len(statements):
            both = together([one, *partners])
            found.append(_saying(both, one.lines[0], partners[0].lines[0], statements[0]))
    return found


def moved_in_other_words(lines: Sequence[LinesVariant]) -> list[LinesVariant]:
    """What the port alone has, with each line that it lacks: a statement may stand elsewhere and read otherwise."""
    added = [one for one in lines if one.lines[0].old is None]
    lacking = [one for one in lines if one.lines[0].new is None]
    return [together(two) for two in itertools.islice(itertools.product(added, lacking), _MOST_IN_OTHER_WORDS)]


def _likeness(lacking: LinesVariant, statement: Any) -> float:
    return ratio(words_of(lacking.lines[0].old), words_of(statement))


def _saying(both: LinesVariant, added: Difference, lacking: Difference, statement: Any) -> LinesVariant:
    """The lines with words for the statement, for one that it has moved across, and for both lines of it."""
    old = lacking.old
    assert old is not None
    crossed, is_before = _crossed(added, lacking)
    where = ""
    if crossed is not None:
        sides = ("before", "behind") if is_before else ("behind", "before")
        where = f" {sides[0]} `{shortened(crossed)}`, in the reference {sides[1]} it"
    if _numbers(old) != _numbers(statement):
        where = f"{where or ' elsewhere'}, where that reads `{shortened(old)}`"
    lines = f"{line_of(added.ours, statement)} and {line_of(lacking.theirs, old)}"
    detail = f"`{shortened(statement)}` stands{where or ' elsewhere'}, {lines}"
    return LinesVariant(detail, both.lines, both.module, both.names, both.helpers)


def _crossed(added: Difference, lacking: Difference) -> tuple[ast.AST | None, bool]:
    """A statement of the reference across which another has moved, and whether the port has that before it.

    Of several it is the first that changes most of what the moved one reads, or the other way round.
    """
    tree, (anchor, kind) = added.theirs.tree, added.place
    for node in ast.walk(tree):
        for run in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if not isinstance(run, list):
                continue
            inside = [any(one is lacking.old for one in ast.walk(item)) for item in run]
            if True not in inside:
                continue
            was = inside.index(True)
            at = next((number for number, one in enumerate(run) if id(one) == anchor and kind == "before"), None)
            at = len(run) if at is None and id(node) == anchor and kind == "behind" else at
            if at is not None:
                between = run[at:was] if at <= was else run[was + 1 : at]
                return max(between, key=lambda one: _bound(one, lacking.old), default=None), at <= was
    return None, False


def _numbers(node: ast.AST) -> list[Any]:
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]


def _bound(one: ast.AST, other: ast.AST | None) -> tuple[int, int]:
    """How many names one of two statements changes that the other has, and how many both have."""
    mine, theirs = _names(one), _names(other)
    return len((changed_by(one) & theirs) | (mine & changed_by(other))), len(mine & theirs)


def changed_by(node: ast.AST | None) -> set[str]:
    """What statements assign to, and whose methods they call for nothing but their effect."""
    found = set[str]()
    for one in ast.walk(node) if node is not None else ():
        targets = getattr(one, "targets", None) or [getattr(one, "target", None)]
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) and isinstance(one.value.func, ast.Attribute):
            targets = [one.value.func.value]
        found.update(*map(_names, targets))
    return found


def _names(node: ast.AST | None) -> set[str]:
    inside = list(ast.walk(node)) if node is not None else []
    return {one.id for one in inside if isinstance(one, ast.Name) and one.id != "self"} | {
        one.attr for one in inside if isinstance(one, ast.Attribute)
    }
