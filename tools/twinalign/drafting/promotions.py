"""Operators between tensors of two types, of which torch makes one and paddle raises, and items that tensors name, for
whose values paddle has no right gradient.
"""

import ast
from collections.abc import Sequence

Promotion = tuple[int, int, int, int, str, str, str]
"""Line, column, last line and last column of an operation; the types of its sides and of what torch makes of them, or
`items` three times where it sets items.
"""

Edit = tuple[int, int, str, int]
"""Line, column, text, and the number of bytes in whose place it stands."""

_CASTS = {"float32": "float", "float64": "double", "int64": "long", "int32": "int", "float16": "half"}


def with_casts(text: str, promotions: Sequence[Promotion]) -> str:
    """The source with a cast on those sides of the operations that have another type than what torch makes of them, and
    `x = x.index_put((i,), y)` for `x[i] = y` where it sets items.

    Lines keep their numbers.
    """
    known: dict[tuple[int | None, ...], Sequence[str]] = {
        (line, column, last, end): types for line, column, last, end, *types in promotions
    }
    edits: list[Edit] = []
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for node in ast.walk(ast.parse(text)) if known else ():
        if isinstance(node, (ast.Assign, ast.AugAssign)) and (target := _items_of(node, known)) is not None:
            edits += _put(node, target, lines)
            continue
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
    gone = [(line, column, column + count) for line, column, _, count in edits if count]
    edits = [edit for edit in edits if not any(edit[0] == line and a < edit[1] < b for line, a, b in gone)]
    for line, column, what, count in sorted(edits, key=lambda edit: edit[:2], reverse=True):  # an outer before an inner
        lines[line - 1] = lines[line - 1][:column] + what.encode() + lines[line - 1][column + count :]
    return b"".join(lines).decode()


def _items_of(
    node: ast.Assign | ast.AugAssign, known: dict[tuple[int | None, ...], Sequence[str]]
) -> ast.Subscript | None:
    """The target of an assignment to items of a variable, if it is one of the known places and on one line."""
    (target, *more) = node.targets if isinstance(node, ast.Assign) else [node.target]
    match target:
        case ast.Subscript(ast.Name()) if not more and "items" in known.get(_place(target), ()):
            return target if target.lineno == target.end_lineno == node.value.lineno else None
    return None


def _put(node: ast.Assign | ast.AugAssign, target: ast.Subscript, lines: Sequence[bytes]) -> list[Edit]:
    """The edits that make a call of `index_put` of an assignment to items."""
    name, index = ast.unparse(target.value), ast.unparse(target.slice)
    places = index if isinstance(target.slice, ast.Tuple) else f"({index},)"
    start, end = target.value.end_col_offset or 0, target.slice.end_col_offset or 0
    sign = lines[node.lineno - 1].index(b"=", end) + 1
    before, behind = f" = {name}.index_put({places},", ")"
    if isinstance(node, ast.AugAssign):
        operator = lines[node.lineno - 1][end : sign - 1].strip(b" ])").decode()
        before, behind = f"{before} {name}[{index}] {operator} (", "))"
    return [(node.lineno, start, before, sign - start), (node.end_lineno or 0, node.end_col_offset or 0, behind, 0)]


def _after(side: ast.expr, cast: str) -> list[Edit]:
    """The insertions that cast a side."""
    end = side.end_lineno or side.lineno, side.end_col_offset or 0
    if isinstance(side, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return [(*end, cast, 0)]
    return [(*end, f"){cast}", 0), (side.lineno, side.col_offset, "(", 0)]


def _sides(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    match node:
        case ast.BinOp(left, _, right) | ast.AugAssign(left, _, right) | ast.Compare(left, [_], [right]):
            return left, right
    return None


def _place(node: ast.AST) -> tuple[int | None, ...]:
    return tuple(getattr(node, name, None) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"))
