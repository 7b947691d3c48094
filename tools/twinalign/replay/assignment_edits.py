"""Edits of what statements of a function do with values: which names get them, whether they are added or take a place,
and which of two siblings is read throughout."""

import ast
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from twinalign.replay.edited_trees import placed, with_nodes
from twinalign.replay.likeness import are_siblings

_MOST_NAMES = 6
_TWICE = 2
_ADDING = ast.Add, ast.Sub, ast.Mult
_EXTREMES = "max", "min"
Edit = tuple[Any, Any]
"""A statement or a target of the code, and what takes its place."""


def assignment_edits(tree: ast.FunctionDef) -> Iterator[Edit]:
    """`b, a = halves(x)` for `a, b = halves(x)`, `logits, state = model(x)` for `logits, _ = model(x)`, `total += part`
    for `total = part`, and back.

    Results that are thrown away, or that nothing reads, are given to names which are read and have a value before.
    """
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    made = Counter(itertools.chain((one.arg for one in tree.args.args), *map(_targets, statements)))
    known = [name for name in made if name in read and name != "self"]
    for statement in statements:
        if isinstance(statement, ast.AugAssign):
            yield from ((statement, placed(new, statement)) for new in _of_adding(statement))
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            yield from ((target, placed(new, target)) for new in _others(target, known, read))
            if isinstance(target, ast.Name) and target.id in known and made[target.id] > 1:
                yield statement, placed(ast.AugAssign(target, ast.Add(), statement.value), statement)


def sibling_edits(tree: ast.FunctionDef) -> Iterator[Edit]:
    """What a statement computes with a sibling of a name that it reads several times: `b2 * m + (1 - b2) * g`."""
    every = {one.arg if isinstance(one, ast.arg) else getattr(one, "id", "") for one in ast.walk(tree)}
    values = [getattr(node, "value", None) for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    for value in [one for one in values if isinstance(one, ast.expr)]:
        read = [one for one in ast.walk(value) if isinstance(one, ast.Name)]
        for name, times in Counter(one.id for one in read).items():
            for other in sorted(other for other in every if times > 1 and are_siblings(name, other)):
                others: dict[ast.AST, ast.AST] = {
                    one: placed(ast.Name(other, ast.Load()), one) for one in read if one.id == name
                }
                yield value, placed(with_nodes(value, others), value)


def repeated_edits(tree: ast.FunctionDef) -> Iterator[tuple[Edit, Edit]]:
    """A name of the function in place of what a statement computes twice in the same words, in both places."""
    given = {one.arg: 0 for one in tree.args.args}
    stored = {node.id: node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and _is_stored(node)}
    for statement in (node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AugAssign, ast.Return))):
        computed: dict[str, list[ast.expr]] = {}
        for one in ast.walk(statement):
            if isinstance(one, (ast.Call, ast.BinOp)):
                computed.setdefault(ast.dump(one), []).append(one)
        known = [name for name, line in (given | stored).items() if line < statement.lineno and name != "self"]
        for places in (places for places in computed.values() if len(places) == _TWICE):
            for name in known:
                names = [placed(ast.Name(name, ast.Load()), node) for node in places]
                yield (places[0], names[0]), (places[1], names[1])


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _of_adding(statement: ast.AugAssign) -> Iterator[ast.stmt]:
    yield ast.Assign([statement.target], statement.value)
    yield from (
        ast.AugAssign(statement.target, kind(), statement.value)
        for kind in _ADDING
        if isinstance(statement.op, _ADDING) and not isinstance(statement.op, kind)
    )
    if isinstance(statement.op, ast.Add):  # the greatest of all, or the least
        own = ast.parse(ast.unparse(statement.target), mode="eval").body
        for name in _EXTREMES:
            chosen = ast.Call(ast.Name(name, ast.Load()), [own, statement.value], [])
            yield ast.Assign([statement.target], chosen)


def _others(target: ast.expr, known: list[str], read: set[str]) -> Iterator[ast.expr]:
    items = target.elts if isinstance(target, ast.Tuple) else []
    for one, other in itertools.combinations(range(min(len(items), _MOST_NAMES)), 2):
        parts = list(items)
        parts[one], parts[other] = items[other], items[one]
        yield ast.Tuple(parts, ast.Store())
    own = {one.id for one in items if isinstance(one, ast.Name)}
    for at, item in enumerate(items):
        if isinstance(item, ast.Name) and item.id not in read:
            for name in [name for name in known if name not in own][:_MOST_NAMES]:
                yield ast.Tuple([*items[:at], ast.Name(name, ast.Store()), *items[at + 1 :]], ast.Store())


def _targets(statement: ast.stmt) -> list[str]:
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    inside = [one for target in targets if target is not None for one in ast.walk(target)]
    return [one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
