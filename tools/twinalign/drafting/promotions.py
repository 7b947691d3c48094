"""What torch does at a place of a source and paddle does not: it makes one type of two, gives what is put into items a
gradient, changes a tensor wherever it is held, gathers truth values, and looks for a value in a tensor.
"""

import ast
from collections.abc import Sequence

Promotion = tuple[int, int, int, int, str, str, str]
"""Line, column, last line and last column of an operation; the types of its sides and of what torch makes of them, or
what else `Promotions` of the torch backend notes.
"""

Edit = tuple[int, int, str, int]
"""Line, column, text, and the number of bytes in whose place it stands."""
Known = dict[tuple[int | None, ...], Sequence[str]]

NO_CASTS = {"items", "shared", "member"}
"""Places of these kinds have no sides of two types."""
_CASTS = {"float32": "float", "float64": "double", "int64": "long", "int32": "int", "float16": "half"}


def with_casts(text: str, promotions: Sequence[Promotion]) -> str:
    """The source with a cast on those sides of the operations that have another type than what torch makes of them, and
    in torch's other words where paddle's way of the noted ones is another:

    - `x.__setitem__(i, y)` for `x[i] = y` where a tensor names the items, and `part = x[a].clone()`, its items, then
      `x[a] = part`, for `x[a][i] = y`;
    - `x.copy_(x + y)` for `x += y` where `x` is held elsewhere too;
    - `x.int().gather(…).bool()` for truth values;
    - `x in y.flatten().tolist()` for `x in y`, which asks a row of paddle's for one truth value.

    Lines keep their numbers.
    """
    known: Known = {(line, column, last, end): kinds for line, column, last, end, *kinds in promotions}
    edits: list[Edit] = []
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    tree = ast.parse(text) if known else ast.Module([], [])
    parameters = _parameters(tree)
    for node in ast.walk(tree):
        kinds = known.get(_place(node), ())
        if isinstance(node, (ast.Assign, ast.AugAssign)) and (made := _in_other_words(node, known, parameters)):
            edits += _around(node, *made, lines)
        elif isinstance(node, ast.Call) and "truth" in kinds:
            edits += _as_numbers(node, kinds[1], gives_truths=kinds[2] == "bool")
        elif isinstance(node, ast.Compare) and "member" in kinds:
            edits += _after(node.comparators[0], ".flatten().tolist()")
        elif kinds and (sides := _sides(node)) is not None and not {*NO_CASTS, "truth"} & set(kinds):
            edits += _casts(node, sides, kinds)
    gone = [(line, column, column + count) for line, column, _, count in edits if count]
    edits = [edit for edit in edits if not any(edit[0] == line and a < edit[1] < b for line, a, b in gone)]
    for line, column, what, count in sorted(edits, key=lambda edit: edit[:2], reverse=True):  # an outer before an inner
        lines[line - 1] = lines[line - 1][:column] + what.encode() + lines[line - 1][column + count :]
    return b"".join(lines).decode()


def _casts(node: ast.AST, sides: tuple[ast.expr, ast.expr], types: Sequence[str]) -> list[Edit]:
    """The edits that cast the sides of an operator."""
    made, edits = types[2], []
    left, right = sides
    for side, other, own, its in ((left, right, types[0], types[1]), (right, left, types[1], types[0])):
        if own != made and not (isinstance(node, ast.AugAssign) and side is node.target):
            named = isinstance(other, (ast.Name, ast.Attribute)) and its == made
            cast = f".type_as({ast.unparse(other)})" if named else f".{_CASTS.get(made, 'float')}()"
            edits += _after(side, cast)
    return edits


def _parameters(tree: ast.AST) -> set[ast.AugAssign]:
    """Changes of what a function was given: who called it holds that as well, whether it is used there or not."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.AugAssign)
        and isinstance(inner.target, ast.Name)
        and inner.target.id in {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
    }


def _in_other_words(
    node: ast.Assign | ast.AugAssign, known: Known, parameters: set[ast.AugAssign]
) -> tuple[str, str, str] | None:
    """What stands before, in front of and behind the value of an assignment that is to be made otherwise."""
    (target, *more) = node.targets if isinstance(node, ast.Assign) else [node.target]
    if more or target.lineno != target.end_lineno:
        return None
    kinds, name = known.get(_place(target), ()), ast.unparse(target)
    match target:
        case ast.Subscript(ast.Subscript(ast.Name() | ast.Attribute()) as part) if "part" in kinds:
            held, index = ast.unparse(part), _spelled(target.slice)
            own = f"part[{ast.unparse(target.slice)}]"
            return own, f"part = {held}.clone(); part.__setitem__({index}, ", f"); {held} = part"
        case ast.Subscript(ast.Name() | ast.Attribute()) if "tensors" in kinds:
            return name, f"{ast.unparse(target.value)}.__setitem__({_spelled(target.slice)}, ", ")"
        case ast.Name() | ast.Attribute() if "shared" in known.get(_place(node), ()) and node not in parameters:
            return name, f"{name}.copy_(", ")"
    return None


def _spelled(index: ast.expr) -> str:
    """What stands between brackets, as an argument."""
    match index:
        case ast.Slice(lower, upper, step):
            return f"slice({', '.join('None' if one is None else ast.unparse(one) for one in (lower, upper, step))})"
        case ast.Tuple(parts):
            return f"({', '.join(map(_spelled, parts))},)"
    return ast.unparse(index)


def _around(node: ast.Assign | ast.AugAssign, own: str, before: str, behind: str, lines: Sequence[bytes]) -> list[Edit]:
    """The edits that put text in place of an assignment's target and sign, and behind its value.

    `own` is the target.
    """
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    start, end = target.col_offset, target.end_col_offset or 0
    sign = lines[node.lineno - 1].index(b"=", end) + 1
    if isinstance(node, ast.AugAssign):
        operator = lines[node.lineno - 1][end : sign - 1].strip(b" ])").decode()
        before, behind = f"{before}{own} {operator} (", f"){behind}"
    space = len(lines[node.lineno - 1]) - len(lines[node.lineno - 1][sign:].lstrip(b" ")) - sign
    return [
        (node.lineno, start, before, sign + space - start),
        (node.end_lineno or 0, node.end_col_offset or 0, behind, 0),
    ]


def _as_numbers(node: ast.Call, kind: str, *, gives_truths: bool) -> list[Edit]:
    """The edits that make numbers of the truth values that a function is given, and truth values of what it gives."""
    end = node.end_lineno or 0, node.end_col_offset or 0
    match node:
        case ast.Call(ast.Attribute(ast.Name() | ast.Attribute() as value, name)) if name.endswith("_"):
            return [*_after(value, f".copy_({ast.unparse(value)}.int()"), (*end, ".bool())", 0)]
        case ast.Call(ast.Attribute(value)) if kind == "method":
            given = value
        case ast.Call(_, [value, *_]):
            given = value
        case _:
            return []
    return [*_after(given, ".int()"), *([(*end, ".bool()", 0)] if gives_truths else [])]


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
