"""Edits of what is a share of a range: from 0 on, or from where a condition says that the range begins."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Edit = tuple[ast.expr, ast.expr]


def shares_of_ranges(tree: ast.FunctionDef) -> Iterator[Edit]:
    """`(step - warm) / (total - warm)` for `step / total` beside `if step < warm`, and the other way."""
    nodes = list(ast.walk(tree))
    tests = [one for one in nodes if isinstance(one, ast.Compare) and len(one.ops) == 1]
    for node in nodes:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
            continue
        sides = node.left, node.right
        if all(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub) for one in sides):
            yield node, ast.BinOp(node.left.left, ast.Div(), node.right.left)  # type: ignore[attr-defined]
        for test in tests:
            both = (test.left, test.comparators[0])
            for own, other in (both, both[::-1]):
                if ast.dump(own) == ast.dump(node.left):
                    above, below = (ast.BinOp(one, ast.Sub(), other) for one in sides)
                    yield node, ast.BinOp(above, ast.Div(), below)
