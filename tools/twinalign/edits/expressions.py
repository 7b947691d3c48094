"""Edits of the expressions of a line: its operators, its reductions, and the layers that it calls."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import libcst as cst

from twinalign.edits.source import Edit, Source, called_otherwise, name_of, with_arguments

_OPERATORS: dict[str, Any] = {"add": cst.Add, "sub": cst.Subtract, "mul": cst.Multiply, "div": cst.Divide}
_ASSIGNING: dict[str, Any] = {
    "add": cst.AddAssign,
    "sub": cst.SubtractAssign,
    "mul": cst.MultiplyAssign,
    "div": cst.DivideAssign,
}
_REDUCTIONS = frozenset({"sum", "mean", "max", "min", "amax", "amin", "prod", "std", "var", "median", "logsumexp"})


def operations_as(source: Source, name: str, lines: Sequence[int]) -> Iterator[Edit | None]:
    """Each operation of these lines made the reference's; the operands of a `sub` are exchanged."""
    if name not in _OPERATORS:
        return
    for node in source.within(lines):
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, tuple(_OPERATORS.values())):
            operator: Any = node.operator
            kind = _OPERATORS[name]
            if isinstance(operator, kind):
                swapped = node.with_changes(left=node.right, right=node.left)
                yield source.edit(node, swapped) if name == "sub" else None
            else:
                made = kind(operator.whitespace_before, operator.whitespace_after)
                yield source.edit(node, node.with_changes(operator=made))
        elif isinstance(node, cst.AugAssign) and isinstance(node.operator, tuple(_ASSIGNING.values())):
            written: Any = node.operator
            assigning = _ASSIGNING[name](written.whitespace_before, written.whitespace_after)
            yield source.edit(node, node.with_changes(operator=assigning))


def reductions_as(source: Source, name: str, lines: Sequence[int]) -> Iterator[Edit | None]:
    """Each other reduction of these lines made the reference's."""
    for node in source.within(lines) if name in _REDUCTIONS else ():
        if isinstance(node, cst.Call) and name_of(node) in _REDUCTIONS - {name}:
            yield source.edit(node, called_otherwise(node, name))


def divisors_as(source: Source, name: str, unbiased: bool, lines: Sequence[int]) -> Iterator[Edit | None]:
    """Each such variance or deviation of these lines with the divisor that it has in the reference."""
    for node in source.within(lines):
        if isinstance(node, cst.Call) and name_of(node) == name:
            is_method = source.text_of(node.func).partition(".")[0] not in ("paddle", "torch")
            parameters = ["axis", "unbiased"] if is_method else ["x", "axis", "unbiased"]
            yield source.edit(node, with_arguments(node, {"unbiased": unbiased}, parameters))


def reductions_in(source: Source, line: int) -> Counter[str]:
    """How many reductions of each name begin in a line."""
    calls = [name_of(node) for node in source.within([line]) if isinstance(node, cst.Call)]
    return Counter(name for name in calls if name in _REDUCTIONS)


def meaning_as(source: Source, causes: Collection[str], lines: Sequence[int]) -> Iterator[Edit | None]:
    """Calls of these lines that paddle takes otherwise than torch, written so that they mean what torch's do."""
    for node in source.within(lines):
        if "median_between" in causes and isinstance(node, cst.Call) and name_of(node) == "median":
            lower = with_arguments(node, {"mode": "min"}, [])
            yield source.edit(node, cst.Subscript(lower, [cst.SubscriptElement(cst.Index(cst.Integer("0")))]))
        if "maximum_first_row" in causes and isinstance(node, cst.Subscript) and isinstance(node.value, cst.Call):
            yield source.edit(node, node.value)


def with_layer(source: Source, path: str, lines: Sequence[int], taker: str = "") -> Iterator[Edit | None]:
    """The child layer of this path called on each value of these lines that a call takes, or that is assigned.

    What the child layer `taker` is called on comes first.
    """
    if not path or not all(part.isidentifier() for part in path.split(".")):
        return
    layer = cst.parse_expression(f"self.{path}")
    nodes = list(source.within(lines))
    nodes.sort(key=lambda node: not (isinstance(node, cst.Call) and source.text_of(node.func) == f"self.{taker}"))
    for node in nodes:
        taken = node.args[:1] if isinstance(node, cst.Call) else []
        values = [argument.value for argument in taken if not argument.star]
        if isinstance(node, (cst.Assign, cst.Return)) and node.value is not None:
            values = [node.value]
        for value in values:
            yield source.edit(value, cst.Call(layer, [cst.Arg(value)]))


def with_item(source: Source, line: int, name: str, item: str) -> Edit | None:
    """A text put into the tuple or list `name` of the class that this line stands in; made where there is none."""
    for node in source.of_type(cst.ClassDef):
        first, last = source.lines(node)
        if not first <= line <= last:
            continue
        simple = [part for one in node.body.body if isinstance(one, cst.SimpleStatementLine) for part in one.body]
        for given in simple:
            named = isinstance(given, cst.Assign) and source.text_of(given.targets[0].target) == name
            if named and isinstance(given, cst.Assign) and isinstance(given.value, cst.Tuple | cst.List):
                if not given.value.elements:
                    return source.edit(given.value, cst.parse_expression(f'("{item}",)'))
                behind = given.value.elements[-1]
                text = source.text_of(behind)
                return Edit(source.file, source.span(behind), text, f'{text}, "{item}"')
        for below in node.body.body:
            if isinstance(below, cst.FunctionDef):
                row, column = source.lines(below)[0], source.span(below)[1]
                row = min([row, *(source.lines(one)[0] for one in below.decorators)])
                return Edit(source.file, (row, column, row, column), "", f'{name} = ("{item}",)\n\n{" " * column}')
    return None


def with_a_term_added(source: Source, line: int | None, first: int, last: int) -> Iterator[Edit | None]:
    """Each name in an expression added to it: a residual that is left out.

    In the line that went wrong; where that is not known, in what is returned.
    """
    for statement in source.returns(first, last) if line is None else source.statements(line):
        if not first <= source.span(statement)[0] <= last or statement.value is None:
            continue
        value = statement.value
        names = [node.value for node in _argument_names(value)]
        for name in dict.fromkeys(names):
            added = cst.BinaryOperation(cst.Name(name), cst.Add(), value)
            yield source.edit(value, added)


def _argument_names(value: cst.BaseExpression) -> Iterator[cst.Name]:
    """Names that are arguments of calls in an expression."""
    if isinstance(value, cst.Call):
        for argument in value.args:
            if isinstance(argument.value, cst.Name):
                yield argument.value
            else:
                yield from _argument_names(argument.value)
