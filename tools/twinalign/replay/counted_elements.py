"""Edits of what counts a tensor's elements: over other axes, as for a mean or an unbiased variance."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence

from twinalign.replay.small_edits import expressions

_MOST_AXES = 5
Edit = tuple[ast.expr, ast.expr]


def counted_elements(parts: Sequence[ast.AST]) -> Iterator[Edit]:
    """Each product of a tensor's sizes, or one of them, with those of other axes; those of most axes first.

    An axis that the tensor has not does not run.
    """
    every = [(node, axes) for node in expressions(parts) if (axes := _axes(node)) is not None]
    inside = {id(one) for node, _ in every for one in ast.walk(node) if one is not node}
    for node, (tensor, own) in every:
        if id(node) not in inside:
            for count in range(_MOST_AXES, 0, -1):
                for others in itertools.combinations(range(_MOST_AXES), count):
                    if {*others} != {*own}:
                        sizes = [f"{tensor}.shape[{axis}]" for axis in others]
                        yield node, ast.parse(" * ".join(sizes), mode="eval").body


def _axes(node: ast.AST) -> tuple[str, list[int]] | None:
    """The tensor and the axes over which an expression counts its elements."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _axes(node.left), _axes(node.right)
        return (left[0], left[1] + right[1]) if left and right and left[0] == right[0] else None
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Attribute) or node.value.attr != "shape":
        return None
    try:
        axis = ast.literal_eval(node.slice)
    except ValueError:
        return None
    return (ast.unparse(node.value.value), [axis]) if isinstance(axis, int) else None
