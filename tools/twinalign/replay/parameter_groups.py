"""Parameter groups as the reference has them: conditions that choose parameters, and settings of a group.

Which parameters decay, or belong to a group, is chosen by one condition, and that is where a port goes wrong: torch's
names say `bias` and `norm`, paddle's do not. What the reference says in a loop over groups, paddle has as a setting.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from twinalign.replay.aligned_code import Code
from twinalign.replay.helper_edits import HelperEdit
from twinalign.replay.likeness import words_of
from twinalign.replay.small_edits import numbers_in

_MOST = 40
_SETTINGS = "learning_rate", "weight_decay"
_OF_GROUPS = frozenset(("params", "param_groups", "lr", "weight_decay"))
_STATEMENTS = ast.Assign | ast.AugAssign | ast.Return | ast.Expr


def other_groups(codes: Sequence[Code], theirs: Sequence[ast.AST]) -> Iterator[HelperEdit]:
    """Edits of the conditions, then of the settings of each group that is written as `{"params": …}`."""
    yield from other_choices(codes, theirs)
    settings = (one for tree in theirs for one in ast.walk(tree) if isinstance(one, _STATEMENTS) and _sets(one))
    numbers = dict.fromkeys(numbers_in([node for one in settings for node in ast.walk(one)]))
    groups = [(code, node) for code in codes for node in code.nodes if isinstance(node, ast.Dict) and _is_group(node)]
    found = itertools.product(_SETTINGS, groups, numbers)
    for name, (code, group), number in itertools.islice(found, _MOST):
        pairs = [(key, value) for key, value in zip(group.keys, group.values, strict=True) if _named(key) != name]
        keys, values = zip(*pairs, (ast.Constant(name), ast.Constant(number)), strict=True)
        new = ast.Dict(list(keys), list(values))
        if ast.dump(new) != ast.dump(group):
            yield HelperEdit(code, group, ast.fix_missing_locations(ast.copy_location(new, group)))


def _sets(statement: ast.stmt) -> bool:
    """Whether a statement of the reference names groups or their settings."""
    return not _OF_GROUPS.isdisjoint(words_of(statement))


def _is_group(node: ast.Dict) -> bool:
    return "params" in map(_named, node.keys)


def _named(key: ast.expr | None) -> Any:
    return key.value if isinstance(key, ast.Constant) else None


def other_choices(codes: Sequence[Code], theirs: Sequence[ast.AST]) -> Iterator[HelperEdit]:
    """Edits of the port's functions that put a condition of the reference's, or its opposite, in place of one."""
    wanted = [choice for tree in theirs for choice in _choices(tree)]
    found = ((code, ours, choice) for code in codes for ours in _choices(code.tree) for choice in wanted)
    seen = set[tuple[int, str]]()
    for code, (name, old), (their_name, condition) in found:
        for new in (_renamed(condition, their_name, name), _opposite(_renamed(condition, their_name, name))):
            key = id(old), ast.unparse(new)
            if key in seen or ast.dump(new) == ast.dump(old):
                continue
            seen.add(key)
            if len(seen) > _MOST:
                return
            yield HelperEdit(code, old, ast.fix_missing_locations(ast.copy_location(new, old)))


def _choices(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The condition of each comprehension, loop and lambda that chooses, with the name of what is chosen."""
    for node in ast.walk(tree):
        if isinstance(node, ast.comprehension):
            chosen, conditions = node.target, node.ifs
        elif isinstance(node, ast.For):
            chosen, conditions = node.target, [one.test for one in ast.walk(node) if isinstance(one, ast.If)]
        elif isinstance(node, ast.Lambda) and len(node.args.args) == 1:
            is_condition = isinstance(node.body, (ast.Compare, ast.BoolOp, ast.UnaryOp))
            chosen, conditions = ast.Name(node.args.args[0].arg), [node.body] if is_condition else []
        else:
            continue
        names = [one.id for one in ast.walk(chosen) if isinstance(one, ast.Name)]
        for condition in conditions:
            read = {one.id for one in ast.walk(condition) if isinstance(one, ast.Name)}
            if used := [name for name in names if name in read]:  # of `name, parameter` the one that is asked
                yield used[-1], condition


def _renamed(condition: ast.expr, old: str, new: str) -> ast.expr:
    made = copy.deepcopy(condition)
    for node in ast.walk(made):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
    return made


def _opposite(condition: ast.expr) -> ast.expr:
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return condition.operand
    if isinstance(condition, ast.Compare) and len(condition.ops) == 1:
        for pair in ((ast.Gt, ast.LtE), (ast.Lt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn)):
            for one, other in (pair, pair[::-1]):
                if isinstance(condition.ops[0], one):
                    return ast.Compare(condition.left, [other()], condition.comparators)
    return ast.UnaryOp(ast.Not(), condition)
