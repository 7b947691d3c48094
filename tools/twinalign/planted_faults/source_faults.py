"""Faults for the source of any port: operators that find their places in it, and the edits that they plant there."""

import ast
import dataclasses
import itertools
import random
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import libcst as cst

from twinalign.edits.source import Edit, Source, applied, called_otherwise, name_of

_Operator = Callable[[Source, Any], Iterator[Edit | None]]
_OPERATORS: dict[str, _Operator] = {}

_EXCHANGED: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
_OTHER_OPERATORS: Mapping[type, type] = {
    cst.Add: cst.Subtract,
    cst.Subtract: cst.Add,
    cst.Multiply: cst.Divide,
    cst.Divide: cst.Multiply,
    cst.AddAssign: cst.SubtractAssign,
    cst.LessThan: cst.LessThanEqual,
    cst.GreaterThan: cst.GreaterThanEqual,
    cst.GreaterThanEqual: cst.GreaterThan,
    cst.LessThanEqual: cst.LessThan,
}
_SHAPING = frozenset({"reshape", "transpose", "flatten", "squeeze", "unsqueeze", "chunk", "astype", "super", "range"})
"""Calls without which, or with others of whose numbers, a port stops with an error or is as it was."""


@dataclasses.dataclass(frozen=True)
class SourceFault:
    """A fault of a port's source: the operator that makes it, and the edit that plants it."""

    operator: str
    edit: Edit
    outside_functions: bool = False
    """Whether the place stands in no function of the file."""

    @property
    def id(self) -> str:
        """`OPERATOR@FILE:LINE:COLUMN`, the file by its name."""
        file = self.edit.file.replace("\\", "/").rpartition("/")[2]
        return f"{self.operator}@{file}:{self.edit.line}:{self.edit.span[1]}"

    def planted_in(self, text: str) -> str:
        return applied(text, [self.edit])


def source_faults(texts: Mapping[str, str]) -> dict[str, list[SourceFault]]:
    """Every fault that the operators find places for, by operator, in the order of the files and their text.

    Args:
        texts: real path -> text of a port's file; one that is no Python is passed over.
    """
    found: dict[str, dict[Edit, SourceFault]] = {name: {} for name in _OPERATORS}
    for file, text in texts.items():
        try:
            source = Source(file, text)
        except ValueError:
            continue
        functions = [source.lines(node) for node in source.of_type(cst.FunctionDef)]
        nodes = sorted(source.positions, key=source.span)
        for node in nodes:
            for name, operator in _OPERATORS.items():
                for edit in filter(None, operator(source, node)):
                    outside = not any(first <= edit.line <= last for first, last in functions)
                    found[name].setdefault(edit, SourceFault(name, edit, outside))
    return {name: list(faults.values()) for name, faults in found.items()}


def chosen_faults(texts: Mapping[str, str], count: int, seed: int = 0) -> list[SourceFault]:
    """So many faults drawn by lot: of each operator one, then a second, until there are enough or no more.

    No two change the same piece of text.
    """
    draw = random.Random(seed)
    waiting = list(source_faults(texts).values())
    for faults in waiting:
        draw.shuffle(faults)
    chosen: list[SourceFault] = []
    while len(chosen) < count and any(waiting):
        for faults in waiting:
            taken = {(one.edit.file, one.edit.span) for one in chosen}
            fresh = (one for one in faults if (one.edit.file, one.edit.span) not in taken)
            fault = next((one for one in fresh if _is_python(one.planted_in(texts[one.edit.file]))), None)
            faults[:] = faults[faults.index(fault) + 1 :] if fault is not None else []
            if fault is not None and len(chosen) < count:
                chosen.append(fault)
    return chosen


def operators() -> Mapping[str, str]:
    """Operator -> what it does."""
    return {name: (operator.__doc__ or "").strip() for name, operator in _OPERATORS.items()}


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _plants(operator: _Operator) -> _Operator:
    _OPERATORS[operator.__name__] = operator
    return operator


@_plants
def argument_left_out(source: Source, node: Any) -> Iterator[Edit | None]:
    """A keyword argument is left out."""
    if isinstance(node, cst.Call):
        for argument in node.args:
            if argument.keyword is not None and argument.keyword.value not in ("parameters", "learning_rate"):
                yield _without(source, node, "args", argument)


@_plants
def number_changed(source: Source, node: Any) -> Iterator[Edit | None]:
    """A number that is an argument, an item, a default or an operand is another one."""
    numbers: Sequence[cst.CSTNode | None] = ()
    if isinstance(node, cst.Call) and name_of(node) not in _SHAPING:
        numbers = [argument.value for argument in node.args]
    elif isinstance(node, cst.Tuple | cst.List):
        numbers = [element.value for element in node.elements]
    elif isinstance(node, cst.BinaryOperation):
        numbers = [node.left, node.right]
    elif isinstance(node, cst.Param):
        numbers = [node.default]
    elif isinstance(node, cst.Assign):
        numbers = [node.value]
    for number in numbers:
        if isinstance(number, cst.Float):
            yield source.edit(number, cst.Float(repr(_other_number(float(number.value)))))


@_plants
def whole_number_changed(source: Source, node: Any) -> Iterator[Edit | None]:
    """A whole number that is a keyword's value, an index or an axis is another one."""
    if isinstance(node, cst.Arg) and node.keyword is not None and isinstance(node.value, cst.Integer):
        yield source.edit(node.value, cst.Integer(str(int(node.value.value, 0) + 1)))
    if isinstance(node, cst.Index) and isinstance(node.value, cst.Integer):
        yield source.edit(node.value, cst.Integer(str(1 - min(1, int(node.value.value, 0)))))
    by_number = isinstance(node, cst.BinaryOperation) and isinstance(node.right, cst.Integer)
    if by_number and isinstance(node.operator, cst.Power | cst.Modulo | cst.FloorDivide):
        yield source.edit(node.right, cst.Integer(str(int(node.right.value, 0) + 1)))


@_plants
def axis_changed(source: Source, node: Any) -> Iterator[Edit | None]:
    """A reduction, softmax or concatenation goes along another axis."""
    if isinstance(node, cst.Call) and name_of(node) in ("mean", "sum", "softmax", "log_softmax", "max", "amax", "norm"):
        for argument in node.args[-1:]:
            text = source.text_of(argument.value)
            if text in ("1", "-1", "2", "-2"):
                yield source.edit(argument.value, cst.parse_expression("1" if text.startswith("-") else "-1"))


@_plants
def flag_turned(source: Source, node: Any) -> Iterator[Edit | None]:
    """True stands for False, or False for True."""
    is_flag = isinstance(node, cst.Arg) and isinstance(node.value, cst.Name) and node.value.value in ("True", "False")
    if is_flag and (node.keyword is None or node.keyword.value != "keepdim"):
        yield source.edit(node.value, cst.Name("False" if node.value.value == "True" else "True"))


@_plants
def text_changed(source: Source, node: Any) -> Iterator[Edit | None]:
    """A mode that is given as a text is another one."""
    if isinstance(node, cst.Arg) and isinstance(node.value, cst.SimpleString):
        other = _EXCHANGED["texts"].get(str(node.value.evaluated_value))
        if other is not None:
            yield source.edit(node.value, cst.SimpleString(f'"{other}"'))


@_plants
def name_exchanged(source: Source, node: Any) -> Iterator[Edit | None]:
    """Another activation, reduction, pool, loss, optimizer or initialiser is called."""
    if isinstance(node, cst.Call):
        other = _EXCHANGED["names"].get(name_of(node))
        if other is not None:
            yield source.edit(node.func, called_otherwise(node, other).func)


@_plants
def call_left_out(source: Source, node: Any) -> Iterator[Edit | None]:
    """A layer or function is not called, its first argument stands in its place."""
    if isinstance(node, cst.Call) and node.args and not node.args[0].star and node.args[0].keyword is None:
        is_of_object = isinstance(node.func, cst.Attribute) and name_of(node) not in _SHAPING
        first = node.args[0].value
        if is_of_object and isinstance(first, cst.Call | cst.Name | cst.BinaryOperation) and len(node.args) < 3:
            yield source.edit(node, first)


@_plants
def call_of_value_left_out(source: Source, node: Any) -> Iterator[Edit | None]:
    """A method without arguments, `detach` or `exp` say, is not called."""
    is_bare = isinstance(node, cst.Call) and not node.args and isinstance(node.func, cst.Attribute)
    if is_bare and name_of(node) not in ("__init__", "parameters", "sublayers", "sum", "mean", "max", "item", "numpy"):
        yield source.edit(node, node.func.value)


@_plants
def calls_exchanged(source: Source, node: Any) -> Iterator[Edit | None]:
    """Two calls, the one on the other's result, are made in the other order."""
    if isinstance(node, cst.Call) and len(node.args) == 1 and isinstance(node.args[0].value, cst.Call):
        inner = node.args[0].value
        if len(inner.args) == 1 and all(isinstance(one.func, cst.Attribute) for one in (node, inner)):
            yield source.edit(node, inner.with_changes(args=[cst.Arg(node.with_changes(args=inner.args))]))


@_plants
def operator_exchanged(source: Source, node: Any) -> Iterator[Edit | None]:
    """An operator is another one: - for +, / for *, <= for <."""
    if isinstance(node, cst.BinaryOperation | cst.AugAssign | cst.ComparisonTarget):
        other = _OTHER_OPERATORS.get(type(node.operator))
        operator = node.operator
        if other is not None:
            made = other(operator.whitespace_before, operator.whitespace_after)  # type: ignore[union-attr]
            yield source.edit(node, node.with_changes(operator=made))


@_plants
def operands_exchanged(source: Source, node: Any) -> Iterator[Edit | None]:
    """The operands of a difference, quotient or matrix product are exchanged."""
    ordered = cst.Subtract | cst.Divide | cst.MatrixMultiply
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, ordered):
        yield source.edit(node, node.with_changes(left=node.right, right=node.left))


@_plants
def term_left_out(source: Source, node: Any) -> Iterator[Edit | None]:
    """A term of a sum, a residual say, or a factor of a product is left out."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract | cst.Multiply):
        yield source.edit(node, node.right)
        yield source.edit(node, node.left)


@_plants
def sign_left_out(source: Source, node: Any) -> Iterator[Edit | None]:
    """The minus sign of an expression is left out."""
    is_minus = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus)
    if is_minus and not isinstance(node.expression, cst.Integer):
        yield source.edit(node, node.expression)


@_plants
def statement_left_out(source: Source, node: Any) -> Iterator[Edit | None]:
    """A line that makes something of a value, or calls something, is left out."""
    of_name = isinstance(node, cst.Assign) and len(node.targets) == 1 and isinstance(node.targets[0].target, cst.Name)
    if of_name and node.targets[0].target.value in _names(node.value):
        yield source.edit(node, cst.Pass())
    if isinstance(node, cst.AugAssign):
        yield source.edit(node, cst.Pass())
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call) and "super" not in source.text_of(node):
        yield source.edit(node, cst.Pass())


@_plants
def statements_exchanged(source: Source, node: Any) -> Iterator[Edit | None]:
    """Two neighbouring lines that change one value stand in the other order."""
    if isinstance(node, cst.IndentedBlock):
        lines = [one for one in node.body if isinstance(one, cst.SimpleStatementLine)]
        for one, two in itertools.pairwise(lines):
            first, second = one.body[0], two.body[0]
            if isinstance(first, cst.Assign | cst.AugAssign | cst.Expr) and isinstance(second, type(first)):
                of_super = "super" in source.text_of(first) or "self." in source.text_of(first)[:5]
                spans = source.span(first), source.span(second)
                if not of_super and spans[0][2] + 1 == spans[1][0]:
                    span = (*spans[0][:2], *spans[1][2:])
                    between = source.text_at((*spans[0][2:], *spans[1][:2]))
                    after = source.text_of(second) + between + source.text_of(first)
                    yield Edit(source.file, span, source.text_at(span), after)


@_plants
def item_left_out(source: Source, node: Any) -> Iterator[Edit | None]:
    """A step of a list of steps is left out."""
    if isinstance(node, cst.List):
        steps = [element for element in node.elements if isinstance(element.value, cst.Call)]
        for element in steps if len(node.elements) > 1 else ():
            yield _without(source, node, "elements", element)


@_plants
def items_exchanged(source: Source, node: Any) -> Iterator[Edit | None]:
    """Two neighbouring items of a list, or names of a tuple that is assigned to, stand in the other order."""
    if isinstance(node, cst.List | cst.Tuple):
        for one, two in itertools.pairwise(node.elements):
            alike = type(one.value) is type(two.value) and not isinstance(one.value, cst.Integer)
            if alike and source.text_of(one) != source.text_of(two):
                swapped = {one: one.with_changes(value=two.value), two: two.with_changes(value=one.value)}
                elements = [swapped.get(element, element) for element in node.elements]
                yield source.edit(node, node.with_changes(elements=elements))


@_plants
def changed_in_place(source: Source, node: Any) -> Iterator[Edit | None]:
    """A value is changed in place, so that other names of it change as well."""
    if isinstance(node, cst.Assign) and isinstance(node.value, cst.BinaryOperation):
        target, value = node.targets[0].target, node.value
        to_itself = isinstance(target, cst.Name) and source.text_of(value.left) == target.value
        if to_itself and isinstance(value.operator, cst.Add):
            yield source.edit(node, cst.AugAssign(target, cst.AddAssign(), value.right))


def _without(source: Source, node: cst.CSTNode, of: str, left_out: cst.CSTNode) -> Edit | None:
    kept = [one for one in getattr(node, of) if one is not left_out]
    if kept and kept[-1] is not getattr(node, of)[-1]:
        kept[-1] = kept[-1].with_changes(comma=getattr(node, of)[-1].comma)
    return source.edit(node, node.with_changes(**{of: kept}))


def _other_number(value: float) -> float:
    return value * 0.5 if 0.01 <= abs(value) <= 1.0 else value * 10.0 if value else 0.1


def _names(node: cst.CSTNode) -> set[str]:
    found = {node.value} if isinstance(node, cst.Name) else set()
    return found.union(*(_names(child) for child in node.children))
