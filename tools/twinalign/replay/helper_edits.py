"""The line inside of a port's own function that is wrong, where the function stands for one of torch's.

Torch's function has no lines to compare. Each small edit of the port's function is tried: the one with which it gives
what torch's does, on other inputs as well, says which line is wrong, and how.
"""

import ast
import copy
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code, Helpers, line_of, shortened
from twinalign.replay.fitting import fitting_number
from twinalign.replay.port_lines import LinesVariant
from twinalign.verdict.array_difference import difference

_SECONDS = 6.0
"""Of processor time, for all edits."""
_EXACT = 1e-7
"""Relative: what an edit may leave of the difference to torch's function: constants are written in some digits."""
_DRAWS = (0.0, 0.3, 1.0, 3.0)
"""Relative sizes of what inputs are moved by; the first run is on the inputs as they are."""
_DIGITS = 6
"""A number that is read off is taken for one of so many digits."""
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_KINS = (("mean", "sum", "max", "min"), ("maximum", "minimum"), ("abs", "square", "sqrt"), ("exp", "log", "log1p"),
         ("tanh", "sigmoid", "erf"), ("sin", "cos"), ("zeros", "ones", "zeros_like", "ones_like"),
         ("relu", "relu6", "silu", "gelu", "sigmoid"), ("floor", "ceil", "round"), ("real", "imag"))  # fmt: skip
_KINDS = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Compare, ast.Constant, ast.Name, ast.List, ast.Tuple)
_MOST_ITEMS = 6
_FACTORS = (0.5, 2.0, -1.0)
Values = Mapping[str, np.ndarray]
Run = Callable[[LinesVariant | None, float], Values]


@dataclasses.dataclass(frozen=True)
class HelperEdit:
    """A part of a function of the port, and what it must be for the function to give what torch's gives."""

    code: Code
    old: ast.expr
    new: ast.expr

    @property
    def text(self) -> str:
        """What the port has in place of what, with the line."""
        return f"`{shortened(self.old)}` in place of `{shortened(self.new)}`, {line_of(self.code, self.old)}"

    def to_json(self) -> dict[str, str]:
        return {"before": shortened(self.old), "after": shortened(self.new)}

    @property
    def line_of_port(self) -> tuple[str, int, int]:
        return self.code.file, self.old.lineno, self.old.end_lineno or self.old.lineno


def told_inside(
    text: str, evidence: Mapping[str, Any], lines: LinesVariant, run: Run, edit: HelperEdit | None = None
) -> tuple[str, dict[str, Any]] | None:
    """Text and evidence of an explanation that names `lines`, with the line inside of a function that they call.

    None if they call no function of the port's own, or no edit of one is known. `edit`: the one that is.
    """
    edit = edit or mended_helper(lines, run)
    if edit is None:
        return None
    head, found, end = text.rpartition(lines.detail)
    joint = "" if found else "; "
    where = "in" if lines.is_whole else "called by"
    said = f"{head}{joint}{edit.text}; {where} {found or 'the line'}{end if found else ''}"
    places = [edit.line_of_port, *evidence["lines_of_port"]]
    return said, {**evidence, "lines_of_port": places, "helper_edit": edit.to_json() | {"of": text}}


def mended_helper(variant: LinesVariant, run: Run) -> HelperEdit | None:
    """The edit of a function that a line of the port calls with which the line does what the reference's does.

    None if it calls no function of the port's own, or no edit does.

    Args:
        variant: the line that is proven to be wrong.
        run: the unit's values under a variant (None: the reference's own), with inputs that are moved.
    """
    helpers = variant.helpers.alone()
    called = [helpers[name] for name in reached(variant, helpers)]
    if not called or len(variant.lines) != 1 or variant.lines[0].old is None:
        return None
    until, right = time.process_time() + _SECONDS, run(None, 0.0)

    def values(edit: HelperEdit, moved: float = 0.0) -> Values:
        functions = [edited(edit) if code is edit.code else code for code in variant.helpers.functions]
        helpers = Helpers(variant.helpers.partners, functions)
        return run(dataclasses.replace(variant, helpers=helpers), moved)

    def fits(edit: HelperEdit) -> bool:
        try:
            return all(is_same(values(edit, draw), run(None, draw) if draw else right) for draw in _DRAWS)
        except Exception:  # an edit may not run, nor the code on moved inputs
            return False

    def own_read_off(code: Code) -> Iterator[HelperEdit]:
        return read_off(code, lambda edit: _flat(values(edit), right))

    numbers = numbers_in(ast.walk(variant.lines[0].old))
    for kind in (lambda code: plain_edits(code, numbers), own_read_off):
        for code in called:
            for edit in kind(code):
                if time.process_time() > until:
                    return None
                if fits(edit):
                    return edit
    return None


def reached(variant: LinesVariant, helpers: Mapping[str, Code]) -> list[str]:
    """The port's own functions that its line calls, and those that these call, whatever they are called there."""
    found, waiting = list[str](), [(one.new, one.ours) for one in variant.lines if one.new is not None]
    while waiting:
        tree, code = waiting.pop()
        read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        read |= {str(code.globals[name][1]).rpartition(".")[2] for name in read if name in code.globals}
        for name in [name for name in helpers if name in read and name not in found]:
            found.append(name)
            waiting.append((helpers[name].tree, helpers[name]))
    return found


def edited(edit: HelperEdit) -> Code:
    """The function with an edit in it."""

    class Exchange(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return edit.new if node is edit.old else self.generic_visit(_shallow(node))

    return dataclasses.replace(edit.code, tree=Exchange().visit(edit.code.tree))


def _shallow(node: ast.AST) -> ast.AST:
    """A copy whose lists may be changed."""
    made = copy.copy(node)
    for field, value in ast.iter_fields(node):
        if isinstance(value, list):
            setattr(made, field, list(value))
    return made


def _expressions(code: Code) -> list[ast.expr]:
    """What is computed in a function, the outermost first; nothing of what is called or assigned to."""
    called = {id(node.func) for node in ast.walk(code.tree) if isinstance(node, ast.Call)}
    return [
        node
        for part in (*code.tree.body, *code.tree.args.defaults)
        for node in ast.walk(part)
        if isinstance(node, _KINDS)
        and id(node) not in called
        and not (isinstance(node, (ast.Name, ast.List, ast.Tuple)) and not isinstance(node.ctx, ast.Load))
    ]


def plain_edits(code: Code, others: Sequence[float]) -> Iterator[HelperEdit]:
    """Edits without a number that would have to be read off; `others`: numbers that the reference has there."""
    nodes = _expressions(code)
    numbers = list(dict.fromkeys((*numbers_in(nodes), *others)))
    names = dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name))
    for node in nodes:
        for new in (*_of_operation(node), *_of_call(node), *_of_list(node), *_of_leaf(node, numbers, list(names))):
            yield HelperEdit(code, node, ast.fix_missing_locations(ast.copy_location(new, node)))
    for node in nodes:
        for factor in _FACTORS if isinstance(node, (ast.BinOp, ast.Call, ast.Name)) else ():
            yield HelperEdit(code, node, _times(node, factor))


def _of_operation(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
        for kind in _OPERATORS if isinstance(node.op, _OPERATORS) else ():
            if type(node.op) is not kind:
                yield ast.BinOp(node.left, kind(), node.right)
        yield ast.BinOp(node.right, node.op, node.left)
        yield from _with_exchanged_names(node)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield ast.Compare(node.comparators[0], node.ops, [node.left])


def _with_exchanged_names(node: ast.BinOp) -> Iterator[ast.expr]:
    """Two names in each other's place throughout: what is kept and what is taken of a moving average."""
    names = list(dict.fromkeys(one.id for one in ast.walk(node) if isinstance(one, ast.Name)))
    for one, other in itertools.combinations(names[:_MOST_ITEMS], 2):
        made = copy.deepcopy(node)
        for name in (found for found in ast.walk(made) if isinstance(found, ast.Name)):
            name.id = {one: other, other: one}.get(name.id, name.id)
        yield made


def _of_call(node: ast.expr) -> Iterator[ast.expr]:
    """Another function of its kind, other places for two arguments, or none."""
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute):
        for kin in (kin for kin in _KINS if node.func.attr in kin):
            for name in kin:
                if name != node.func.attr:
                    yield ast.Call(ast.Attribute(node.func.value, name, ast.Load()), node.args, node.keywords)
    if len(node.args) >= 2:
        yield ast.Call(node.func, [*node.args[:-2], node.args[-1], node.args[-2]], node.keywords)
    yield from (argument for argument in node.args[:1])


def _of_list(node: ast.expr) -> Iterator[ast.expr]:
    """Two items in each other's place: sizes of a reshape, axes of a transposition, what is concatenated."""
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
    for one, other in itertools.combinations(range(min(len(items), _MOST_ITEMS)), 2):
        if ast.dump(items[one]) != ast.dump(items[other]):
            exchanged = list(items)
            exchanged[one], exchanged[other] = items[other], items[one]
            made = ast.List if isinstance(node, ast.List) else ast.Tuple
            yield made(exchanged, ast.Load())


def _of_leaf(node: ast.expr, numbers: list[float], names: list[str]) -> Iterator[ast.expr]:
    if (value := _number(node)) is not None:
        usual = (value + 1, value - 1, value / 2, value * 2, value / 10, value * 10, -value, 1, 2, 0.5, *numbers)
        yield from (ast.Constant(other) for other in dict.fromkeys(usual) if other != value)
    elif isinstance(node, ast.Name):
        yield from (ast.Name(name, ast.Load()) for name in names if name != node.id)


def read_off(code: Code, remaining: Callable[[HelperEdit], np.ndarray]) -> Iterator[HelperEdit]:
    """Edits with the number that leaves least: in place of one, or as a factor."""
    for node in _expressions(code):
        number = _number(node)
        if isinstance(node, ast.Constant) and number is None:
            continue
        start = 1.0 if number is None else float(number)

        def made(value: float, node: ast.expr = node) -> HelperEdit:
            new = (
                ast.copy_location(ast.Constant(value), node) if isinstance(node, ast.Constant) else _times(node, value)
            )
            return HelperEdit(code, node, new)

        try:
            found = fitting_number(lambda value: remaining(made(value)), start, 1)
        except Exception:  # with another number the code may not run
            continue
        if found is not None and np.isfinite(found) and found != start:
            yield made(float(f"{found:.{_DIGITS}g}"))


def _times(node: ast.expr, factor: float) -> ast.expr:
    new = ast.UnaryOp(ast.USub(), node) if factor == -1.0 else ast.BinOp(ast.Constant(factor), ast.Mult(), node)
    return ast.fix_missing_locations(ast.copy_location(new, node))


def numbers_in(nodes: Iterable[ast.AST]) -> list[float]:
    """The plain numbers among nodes."""
    return [number for node in nodes if (number := _number(node)) is not None]


def _number(node: ast.AST) -> int | float | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _flat(found: Values, right: Values) -> np.ndarray:
    parts = [
        np.asarray(found[name] - right[name], np.float64).ravel() for name in right if right[name].dtype.kind == "f"
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def is_same(found: Values, right: Values) -> bool:
    """Whether values agree but for what constants in some digits make."""
    return found.keys() >= right.keys() and all(difference(found[n], v).relative <= _EXACT for n, v in right.items())
