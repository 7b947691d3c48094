"""Operators between tensors of two types: torch makes one type of them, paddle raises."""

import ast
from collections.abc import Sequence

Promotion = tuple[int, int, int, int, str, str, str]
"""Line, column, last line and last column of an operation; the types of its sides and of what torch makes of them."""

_CASTS = {"float32": "float", "float64": "double", "int64": "long", "int32": "int", "float16": "half"}


def with_casts(text: str, promotions: Sequence[Promotion]) -> str:
    """The source with a cast on those sides of the operations that have another type than what torch makes of them.

    Lines keep their numbers.
    """
    known: dict[tuple[int | None, ...], Sequence[str]] = {
        (line, column, last, end): types for line, column, last, end, *types in promotions
    }
    edits: list[tuple[int, int, str]] = []
    for node in ast.walk(ast.parse(text)) if known else ():
        types, sides = known.get(_place(node)), _sides(node)
        if types is None or sides is None:
            continue
        made = types[2]
        left, right = sides
        for side, other, own, its in ((left, right, types[0], types[1]), (right, left, types[1], types[0])):
            if own != made and not (isinstance(node, ast.AugAssign) and side is node.target):
                named = isinstance(other, (ast.Name, ast.Attribute)) and its == made
                cast = f".type_as({ast.unparse(other)})" if named else f".{_CASTS.get(made, 'float')}()"
                edits += _after(side, cast)
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for line, column, what in sorted(edits, key=lambda edit: edit[:2], reverse=True):  # an outer one before an inner
        lines[line - 1] = lines[line - 1][:column] + what.encode() + lines[line - 1][column:]
    return b"".join(lines).decode()


def _after(side: ast.expr, cast: str) -> list[tuple[int, int, str]]:
    """The insertions that cast a side: line, column and text."""
    end = side.end_lineno or side.lineno, side.end_col_offset or 0
    if isinstance(side, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return [(*end, cast)]
    return [(*end, f"){cast}"), (side.lineno, side.col_offset, "(")]


def _sides(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    match node:
        case ast.BinOp(left, _, right) | ast.AugAssign(left, _, right) | ast.Compare(left, [_], [right]):
            return left, right
    return None


def _place(node: ast.AST) -> tuple[int | None, ...]:
    return tuple(getattr(node, name, None) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"))
