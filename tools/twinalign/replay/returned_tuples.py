"""What a function of the port returns in tuples, in tuples as the reference's function has them."""

import ast
import itertools
from collections.abc import Iterator
from typing import Any

from twinalign.replay.edited_trees import with_nodes


def returning_as(theirs: ast.FunctionDef, ours: ast.FunctionDef) -> ast.FunctionDef:
    """The port's function that returns `x, a, b` where it returns `x, (a, b)` and the reference's `x, a, b`, and so on.

    The port's own function where both return the same tuples, or where that cannot be read off.
    """
    returned = [_returned(tree) for tree in (theirs, ours)]
    if len(returned[0]) != 1 or any(not isinstance(value, ast.Tuple) for values in returned for value in values):
        return ours
    form = returned[0][0]
    if any(len([*_leaves(value)]) != len([*_leaves(form)]) for value in returned[1]):
        return ours
    others = {value: _formed(form, _leaves(value)) for value in returned[1] if _shape(value) != _shape(form)}
    made: ast.FunctionDef = with_nodes(ours, others)
    return made


def _returned(tree: ast.FunctionDef) -> list[ast.AST]:
    inside = itertools.chain.from_iterable(map(ast.walk, tree.body))
    return [node.value for node in inside if isinstance(node, ast.Return) and node.value is not None]


def _leaves(value: ast.AST) -> Iterator[ast.AST]:
    for one in value.elts if isinstance(value, ast.Tuple) else ():
        yield from _leaves(one) if isinstance(one, ast.Tuple) else (one,)


def _shape(value: ast.AST) -> Any:
    return [_shape(one) for one in value.elts] if isinstance(value, ast.Tuple) else None


def _formed(form: ast.AST, leaves: Iterator[ast.AST]) -> Any:
    if not isinstance(form, ast.Tuple):
        return next(leaves)
    made = ast.Tuple([_formed(one, leaves) for one in form.elts], ast.Load())
    return ast.copy_location(made, made.elts[0])
