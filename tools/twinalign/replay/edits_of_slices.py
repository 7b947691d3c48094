"""Small edits of slices: another part of what is read, or of what is written to."""

import ast
from collections.abc import Iterator

from twinalign.replay.edited_trees import number_of, times


def of_stored_slices(part: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The slices of what code writes to, as `bias[:n] = 1` does, and what may take their places."""
    for node in ast.walk(part):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            yield from ((one, other) for one in items if isinstance(one, ast.Slice) for other in of_slice(one))


def of_slice(item: ast.Slice) -> Iterator[ast.Slice]:
    """`1:` for `:-1`, `-n:` for `:n` and the other way round, every second from another start, no step, all, and the
    part of the same size before it or behind it."""
    lower, upper, step = item.lower, item.upper, item.step
    if lower is not None and upper is None and step is None:
        yield ast.Slice(None, times(lower, -1.0), None)
        yield ast.Slice(None, lower, None)
    if upper is not None and lower is None and step is None:
        yield ast.Slice(upper.operand if isinstance(upper, ast.UnaryOp) else upper, None, None)
        yield ast.Slice(times(upper, -1.0), None, None)
    if step is not None:
        yield ast.Slice(ast.Constant(1) if lower is None else None, upper, step)
        yield ast.Slice(lower, upper, None)
    yield from _parts_beside(lower, upper) if upper is not None and step is None else ()
    if lower is not None or upper is not None:
        yield ast.Slice(None, None, step)


def _parts_beside(lower: ast.expr | None, upper: ast.expr) -> Iterator[ast.Slice]:
    """`n : 2 * n` for `:n`, as another gate, half or head, and the other way round."""
    if lower is None:
        yield ast.Slice(upper, times(upper, 2), None)
    elif isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Mult):
        sizes = [one for one in (upper.left, upper.right) if not isinstance(one, ast.Constant)]
        count = next((number_of(one) for one in (upper.left, upper.right) if isinstance(one, ast.Constant)), None)
        if len(sizes) == 1 and isinstance(count, int) and count > 1:
            before = ast.Slice(times(sizes[0], count - 2), lower, None) if count > 2 else ast.Slice(None, lower, None)
            yield from (before, ast.Slice(upper, times(sizes[0], count + 1), None))
