"""Parts of two statements in each other's place, such as the weights of the lower and the upper neighbour."""

import ast
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.likeness import ratio, words_of

_FARTHEST, _MOST = 6, 60
"""So many statements lie between two whose parts are exchanged at most, and so many exchanges are tried."""
_ALIKE = 0.3
"""Share of equal words below which two statements have no parts that could have been mistaken for each other."""
_MOST_ITEMS = 6
Parts = tuple[ast.expr, ast.expr]


def exchangeable(code: Iterable[ast.AST]) -> list[Parts]:
    """Parts that stand in the same place of two like statements of a block, or of a dictionary.

    Neighbours come first, and mere names behind what says more.
    """
    found: list[tuple[int, Parts]] = []
    for node in (inside for part in code for inside in ast.walk(part)):
        runs = [getattr(node, field, None) for field in ("body", "orelse")]
        for run in (run for run in runs if isinstance(run, list)):
            for one, other in itertools.combinations(range(len(run)), 2):
                if other - one <= _FARTHEST:
                    values = _value(run[one]), _value(run[other])
                    parts = _alike(*values) if ratio(_names_of(values[0]), _names_of(values[1])) >= _ALIKE else ()
                    found += [(other - one, both) for both in parts]
        if isinstance(node, ast.Dict):
            found += [(1, both) for both in itertools.combinations(node.values, 2) if _differ(*both)]
    found.sort(key=lambda item: (item[0], any(isinstance(part, (ast.Name, ast.Constant)) for part in item[1])))
    return [both for _, both in found][:_MOST]


def exchanged(tree: ast.AST, parts: tuple[ast.AST, ast.AST]) -> Any:
    """A piece of code with two of its parts in each other's place; the given one stays as it is."""
    one, other = parts
    return with_nodes(tree, {one: other, other: one})


def _value(statement: Any) -> ast.AST | None:
    return getattr(statement, "value", None) if isinstance(statement, (ast.Assign, ast.AugAssign, ast.Return)) else None


def _alike(one: ast.AST | None, other: ast.AST | None) -> Iterator[Parts]:
    """What stands in the same place of both and reads otherwise, the outermost first."""
    if isinstance(one, ast.expr) and isinstance(other, ast.expr) and _differ(one, other):
        yield one, other
    if one is None or other is None or type(one) is not type(other) or _name(one) != _name(other):
        return
    inside: Sequence[Sequence[ast.AST]] = [list(ast.iter_child_nodes(node)) for node in (one, other)]
    if len(inside[0]) == len(inside[1]):
        for two in zip(*inside, strict=True):
            yield from _alike(*two)


def _names_of(value: ast.AST | None) -> list[str]:
    return [word for word in words_of(value) if word.isidentifier()]


def _differ(one: ast.expr, other: ast.expr) -> bool:
    is_read = all(isinstance(getattr(node, "ctx", ast.Load()), ast.Load) for node in (one, other))
    return is_read and ast.dump(one) != ast.dump(other)


def _name(node: ast.AST) -> str:
    """The name of what a call calls; empty for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)


def with_exchanged_weights(node: ast.BinOp) -> Iterator[ast.expr]:
    """`w * b + (1 - w) * a` for `w * a + (1 - w) * b`: what is taken where it should be left, or kept."""
    one, other = node.left, node.right
    if isinstance(one, ast.BinOp) and isinstance(other, ast.BinOp) and {type(one.op), type(other.op)} == {ast.Mult}:
        first, second = ast.BinOp(one.left, one.op, other.right), ast.BinOp(other.left, other.op, one.right)
        yield ast.BinOp(first, node.op, second)


def with_exchanged_parts(node: ast.expr) -> Iterator[ast.expr]:
    """Two parts of tensors in each other's place: `x[:-1] - 0.9 * x[1:]` for `x[1:] - 0.9 * x[:-1]`."""
    parts = [one for one in ast.walk(node) if isinstance(one, ast.Subscript)]
    for one, other in itertools.combinations(parts[:_MOST_ITEMS], 2):
        if ast.dump(one) != ast.dump(other) and not {one, other} & {*ast.walk(one.value), *ast.walk(other.value)}:
            yield with_nodes(node, {one: other, other: one})


def with_moved_factors(node: ast.BinOp) -> Iterator[ast.expr]:
    """`w * a + b` for `a + w * b`: a factor of one side of a sum on the other side."""
    if not isinstance(node.op, (ast.Add, ast.Sub)):
        return
    sides = _factors(node.left), _factors(node.right)
    for at, side in enumerate(sides):
        for one in side if 1 < len(side) <= _MOST_ITEMS else ():
            moved = [factor for factor in side if factor is not one], [one, *sides[1 - at]]
            left, right = (functools.reduce(_times, factors) for factors in (moved if at == 0 else moved[::-1]))
            yield ast.BinOp(left, node.op, right)


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _times(one: ast.expr, other: ast.expr) -> ast.expr:
    return ast.BinOp(one, ast.Mult(), other)
