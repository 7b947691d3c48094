"""Numbers that stand in code: as they are written, or as what is written gives (`math.sqrt(0.5)`, `64 ** -0.5`)."""

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

_SAME = 1e-6
"""Relative: numbers that differ by less are one, as paddle keeps some of them in float32."""
_OPERATIONS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_SAID = 1e-3
"""Relative: what the digits of a number that is printed may leave out."""
_LARGEST_POWER = 64
_PLAIN = (bool, int, float, str)


def constants_in(*trees: ast.AST | None) -> list[float]:
    """Every number, and what is computed from numbers alone as one number, each once."""
    return list(dict.fromkeys(value for tree in trees if tree is not None for value in _found(tree)))


def constants_in_sources(sources: Iterable[str]) -> list[float]:
    """The same of texts, of which those that are no Python alone have none."""
    trees = list[ast.AST]()
    for source in sources:
        try:
            trees.append(ast.parse(source.strip()))
        except SyntaxError:
            continue
    return constants_in(*trees)


def _found(node: ast.AST) -> Iterator[float]:
    value = _value(node)
    if value is not None:
        yield value
        return
    for child in ast.iter_child_nodes(node):
        yield from _found(child)


def _value(node: ast.AST) -> float | None:
    """What a piece of code is if it is computed from numbers alone; None otherwise."""
    try:
        match node:
            case ast.Constant(value=bool()):
                return None
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.UnaryOp(op=op, operand=inner):
                return _applied(op, inner)
            case ast.BinOp(left=left, op=op, right=right):
                return _applied(op, left, right)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="math" | "np" | "numpy"), attr=name), args=[argument]):
                given, function = _value(argument), getattr(math, name, None)
                return float(function(given)) if given is not None and callable(function) else None
            case ast.Attribute(value=ast.Name(id="math" | "np" | "numpy"), attr="pi" | "e" as name):
                return float(getattr(math, name))
    except (ArithmeticError, ValueError, TypeError):
        return None
    return None


def _applied(op: ast.AST, *operands: ast.AST) -> float | None:
    values = [_value(operand) for operand in operands]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or type(op) not in _OPERATIONS:
        return None
    if isinstance(op, ast.Pow) and abs(known[1]) > _LARGEST_POWER:
        return None
    found = _OPERATIONS[type(op)](*known)
    return float(found) if isinstance(found, (int, float)) else None


def exchanged(port: Sequence[ast.AST | None], reference: Sequence[ast.AST | None]) -> bool:
    """Whether either side has a number that the other has not, so that one stands in the other's place."""
    ours, theirs = constants_in(*port), constants_in(*reference)
    return any(not is_in(one, theirs) for one in ours) and any(not is_in(one, ours) for one in theirs)


def factor_in_words(factor: float, port: Sequence[float], reference: Sequence[float]) -> str:
    """From which factors of the code one that the port has too much is made: the port's in place of the reference's.

    Args:
        factor: by which the port's values are the reference's.
        port: numbers in the port's code.
        reference: factors in the reference's code.

    Returns:
        For example `0.5 in place of 0.707107`, `1 in place of 0.5 and 0.25`; nothing where none of them make it.
    """
    lacking = [number for number in reference if number and not is_in(number, port)]
    added = [number for number in port if number and not is_in(number, reference)]
    for number in lacking:
        if _are_one(factor * number, 1.0):
            return f"the port lacks the factor {number:.6g}"
    for ours, theirs in itertools.product(added, lacking):
        if _are_one(factor * theirs, ours):
            return f"{ours:.6g} in place of {theirs:.6g}"
    for one, other in itertools.combinations(lacking, 2):
        if _are_one(factor * one * other, 1.0):
            return f"the port lacks the factors {one:.6g} and {other:.6g}"
    return ""


def is_in(number: float, numbers: Iterable[float]) -> bool:
    """Whether a number is among numbers; paddle keeps some of them in float32."""
    return any(_are_one(number, other) for other in numbers)


def has_number(code: Sequence[ast.AST | None], number: float) -> bool:
    """Whether a number, its negative or one over it stands in code; all that is said of it may be rounded."""
    wanted = {number, -number, *([1 / number, -1 / number] if number else ())}
    return any(math.isclose(one, other, rel_tol=_SAID) for one in constants_in(*code) for other in wanted)


def _are_one(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_SAME)


def plain_values(described: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The numbers, texts and collections of such among what a function reads, as `code_lines.Function` describes it."""
    return {
        name: ast.literal_eval(value) if kind == "literal" else value
        for name, (kind, value) in described.items()
        if kind != "name"
    }


def differ(ours: Any, theirs: Any) -> bool:
    """Whether two plain values of the same kind differ; a list is as good as a tuple."""
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(ours) != len(theirs) or any(map(differ, ours, theirs))
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return ours.keys() == theirs.keys() and any(differ(ours[key], theirs[key]) for key in ours)
    return isinstance(ours, _PLAIN) and isinstance(theirs, _PLAIN) and ours != theirs
