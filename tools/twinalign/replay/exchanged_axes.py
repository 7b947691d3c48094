"""Axes that one statement takes apart and another puts in order, both in another order: heads before q, k and v."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from twinalign.replay.call_edits import RESHAPING, TRANSPOSING, taken_apart
from twinalign.replay.edited_trees import placed

Edit = tuple[ast.expr, ast.expr]


def exchanged_axes(tree: ast.AST) -> Iterator[tuple[Edit, Edit]]:
    """For `x = y.reshape([n, h, 3, d])` and `x.transpose([2, 0, 1, 3])`, two sizes in each other's place in the one and
    their axes in the other."""
    made = {
        one.targets[0].id: one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and _is_method(one.value, RESHAPING)
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not _is_method(call, TRANSPOSING):
            continue
        taken = made.get(getattr(getattr(call.func, "value", None), "id", ""))
        if not isinstance(taken, ast.Call) or (both := taken_apart(taken, call)) is None:
            continue
        (sizes, reshaped), (places, transposed) = both
        for one, other in itertools.combinations(range(len(sizes)), 2):
            if ast.dump(sizes[one]) != ast.dump(sizes[other]):
                at = {one: other, other: one}
                new = reshaped([sizes[at.get(place, place)] for place in range(len(sizes))], taken.func)
                order = transposed([ast.Constant(at.get(place, place)) for place in places], call.func)
                yield (taken, placed(new, taken)), (call, placed(order, call))


def _is_method(node: ast.expr, names: tuple[str, ...]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names
