"""Code with other nodes in the place of some of its own; the given code stays as it is."""

import ast
import copy
from collections.abc import Mapping
from typing import Any

from twinalign.replay.code_text import AS_WRITTEN


def with_nodes(tree: ast.AST, others: Mapping[ast.AST, ast.AST]) -> Any:
    """A piece of code in which each key's place is taken by its value; what does not change is shared with `tree`."""
    if tree in others:
        return others[tree]
    made = tree
    for field, value in ast.iter_fields(tree):
        inside = value if isinstance(value, list) else [value]
        changed = [with_nodes(one, others) if isinstance(one, ast.AST) else one for one in inside]
        if any(one is not other for one, other in zip(inside, changed, strict=True)):
            made = copy.copy(tree) if made is tree else made
            vars(made).pop(AS_WRITTEN, None)
            setattr(made, field, changed if isinstance(value, list) else changed[0])
    return made


def placed(new: Any, node: ast.AST) -> Any:
    """New code in the place of a node; a part of the code itself stays where it is, and a copy takes the place."""
    return ast.fix_missing_locations(ast.copy_location(copy.copy(new) if hasattr(new, "lineno") else new, node))


def times(node: ast.expr, factor: float) -> ast.expr:
    """A factor before an expression; of a negative number the sign goes."""
    if factor != -1.0:
        return placed(ast.BinOp(ast.Constant(factor), ast.Mult(), node), node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return node.operand
    return placed(ast.UnaryOp(ast.USub(), node), node)


def number_of(node: ast.AST) -> int | float | None:
    """The plain number that a node is."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
