"""Statements of the reference that the port lacks, in the port's own names, in each place where they may stand."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code
from twinalign.replay.code_text import shortened
from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.grafts import code_of, names_of_values
from twinalign.replay.known_arrays import are_equal
from twinalign.replay.likeness import ratio, words_of
from twinalign.replay.noted_values import Values
from twinalign.replay.statement_edits import ENDS, Block, StatementEdit, added, blocks_of
from twinalign.replay.statement_pairs import HEADS
from twinalign.replay.torch_in_paddle import NotSpelledError, in_paddle
from twinalign.replay.value_trials import Trials

_FORMS = 12
"""So many forms may a statement take in one function."""
_MOST = 120
_ALIKE = 0.9
"""Share of equal words from which a function has a statement, however it is written."""


def lacking_statements(
    codes: Sequence[Code],
    theirs: Sequence[tuple[Mapping[str, Any], Values]],
    trials: Trials,
) -> list[StatementEdit]:
    """Edits of the port's functions, each with one more statement that changes what the port has with other values.

    Places beside what is like what the reference has there come first.

    Args:
        theirs: the reference's functions, as `values_of` has them.
        trials: of the same functions.
    """
    others = [(code, named) for one, named in theirs if (code := code_of(one)) is not None]
    found: list[tuple[float, StatementEdit]] = []
    for code in (one for one in codes if not trials.returns_rightly(one)):
        values = [(ast.unparse(node), values) for node, values in trials.values_of(code)]
        has = functools.partial(_has, [held for _, held in values])
        known = [words_of(one) for one in code.nodes if isinstance(one, ast.stmt) and not hasattr(one, "body")]
        places = [(block, at, _around(block, at)) for block in blocks_of(code) for at in _open_places(block)]
        for of, named in others:
            for there, at, node, target in _changing(of):
                if any(map(has, _made_by(trials, of, node, target))):
                    continue
                around = _around(there, at, 1)
                for new in _forms(of, node, target, named, code, functools.partial(_partners, trials, of, values)):
                    alike = max((ratio(words_of(new), one) for one in known), default=0.0)
                    first = max((code.first_lines.get(one.id, 0) for one in _names(new)), default=0)
                    found += (
                        (alike - sum(map(ratio, around, words)), edit)
                        for block, to, words in places
                        if alike < _ALIKE and (edit := added(code, block, to, new)).node.lineno > first
                    )
    return [edit for _, edit in sorted(found, key=lambda one: one[0])[:_MOST]]


def _made_by(trials: Trials, of: Code, node: ast.stmt, target: str) -> list[list[list[np.ndarray]]]:
    """What a statement makes of its target, and what that is wherever it is read."""
    value = node.value if isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Subscript) else node
    return [found for text in (shortened(value), target) if (found := trials.values_there(of, text))]


def _partners(
    trials: Trials, of: Code, ours: Sequence[tuple[str, Sequence[np.ndarray]]], name: str, is_target: bool
) -> list[ast.expr]:
    """Names and attributes of the port for one of the reference's, by their values each time.

    For what is changed, those of its shape as well: the port lacks what changes them.
    """
    theirs = trials.values_there(of, name)
    names = [one for one in ours if one[0].replace(".", "_").isidentifier()]
    same = [text for text, values in names if any(are_equal(values, one) for one in theirs)]
    shapes = {one[0].shape for one in theirs} - {()}
    like = [text for text, values in names if values[0].shape in shapes] if is_target else []
    return [ast.parse(text, mode="eval").body for text in dict.fromkeys([*same, *like])]


def _has(ours: Sequence[Sequence[np.ndarray]], theirs: Sequence[Sequence[np.ndarray]]) -> bool:
    return all(any(are_equal(one, other) for other in ours) for one in theirs)


def _open_places(block: Block) -> range:
    """Where a statement would run: not behind one that ends the block."""
    return range(len(block.statements) + (not isinstance(block.statements[-1], ENDS)))


def _around(block: Block, at: int, until: int = 0) -> list[list[str]]:
    """The words of what a place is in, of what is before it, and of what is behind it."""
    heads = [one for name in HEADS if (one := getattr(block.owner, name, None)) is not None]
    sides = block.statements[max(at - 1, 0) : at], block.statements[at + until : at + until + 1]
    plain = [[one for one in some if not hasattr(one, "body")] for some in sides]
    return [[word for node in nodes for word in words_of(node)] for nodes in (heads, *plain)]


def _names(node: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]


def _forms(
    of: Code, node: ast.stmt, target: str, named: Values, code: Code, partners: Callable[[str, bool], list[ast.expr]]
) -> Iterator[ast.stmt]:
    """A statement of one of the reference's functions in the names of one of the port's."""
    if (names := names_of_values(of, node, named)) is None or target not in names:
        return
    choices = itertools.product(*(partners(name, name == target) for name in names))
    for choice in itertools.islice(choices, _FORMS):
        nodes: dict[ast.AST, ast.AST] = {
            one: _as_used(new, one) for name, new in zip(names, choice, strict=True) for one in names[name]
        }
        try:
            made: Any = in_paddle(with_nodes(node, nodes), of.named_things, code.modules)
        except NotSpelledError:
            continue
        if ast.unparse(made.value) not in map(ast.unparse, getattr(made, "targets", ())):
            yield ast.fix_missing_locations(made)


def _changing(code: Code) -> Iterator[tuple[Block, int, ast.stmt, str]]:
    """The statements of a function that change a name or attribute, in part or by what it is, where, and which."""
    for block in blocks_of(code):
        for at, node in enumerate(block.statements):
            if (target := _changed(node)) is not None:
                yield block, at, node, target


def _changed(node: ast.stmt) -> str | None:
    """The name or attribute whose value a statement changes in part, or by what it is; None for others."""
    if isinstance(node, ast.AugAssign):
        target: ast.expr = node.target
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        is_read = ast.unparse(target) in {ast.unparse(one) for one in ast.walk(node.value) if isinstance(one, ast.expr)}
        if not isinstance(target, ast.Subscript) and not is_read:
            return None
    else:
        return None
    while isinstance(target, ast.Subscript):
        target = target.value
    return ast.unparse(target) if isinstance(target, (ast.Name, ast.Attribute)) else None


def _as_used(new: ast.expr, old: ast.expr) -> ast.expr:
    made: ast.expr = ast.parse(ast.unparse(new), mode="eval").body
    if isinstance(made, (ast.Name, ast.Attribute, ast.Subscript)):
        made.ctx = getattr(old, "ctx", made.ctx)
    return made
