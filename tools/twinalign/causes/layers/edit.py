"""One edit of a program, and ways to make a call otherwise that edits share."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from twinalign.backends.torch.reference_only.operations import HANDED, LAYER, Change, FunctionCall, Key
from twinalign.causes.layers.changed_calls import OPERATORS, as_change
from twinalign.causes.layers.program import Operation, Path, Value, put, taken


@dataclasses.dataclass(frozen=True)
class Edit:
    """Another way to make some calls, and the calls whose results it needs."""

    detail: str
    changes: dict[Key, Change]
    reads: frozenset[Key] = frozenset()


Edits = Iterator[Edit]


def one_edit(operation: Operation, detail: str, change: Change, *reads: Key) -> Edit:
    """An edit of this call alone; `reads` are the calls whose results its change reads again."""
    return Edit(detail, {operation.key: change}, frozenset(reads))


def name_of(operation: Operation) -> str:
    """A call in words, without its line."""
    if operation.name == HANDED:
        return f"layer {operation.arguments['path']}"
    return (
        f"layer {operation.arguments['path']}"
        if operation.name == LAYER
        else OPERATORS.get(operation.name, operation.name)
    )


def argument_name(path: Path) -> str:
    """The place of an argument in words."""
    return ".".join(map(str, path))


@as_change
def with_argument(call: FunctionCall, path: Path, value: Any) -> Any:
    """The change that makes the call with something else in one place of its arguments."""
    return call.run(**put(call.arguments, path, value))


@as_change
def operand_of(call: FunctionCall, path: Path) -> Any:
    """The change that returns an operand in place of the result."""
    return taken(call.arguments, path)


@as_change
def on_operand(call: FunctionCall, path: Path, change: Callable[[Any], Any]) -> Any:
    """The change that does something to an operand first."""
    return call.run(**put(call.arguments, path, change(taken(call.arguments, path))))


@as_change
def on_result(call: FunctionCall, method: str, *arguments: Any) -> Any:
    """The change that calls a method of the result."""
    return getattr(call.result, method)(*arguments)


@as_change
def done_twice(call: FunctionCall, path: Path) -> Any:
    """The change that gives the call its own result once more."""
    return call.run(**put(call.arguments, path, call.result))


@as_change
def added_to_result(call: FunctionCall, path: Path) -> Any:
    """The change that adds an operand to the result."""
    return call.result + taken(call.arguments, path)


@as_change
def through_type(call: FunctionCall, name: str) -> Any:
    """The change that takes the result through another dtype and back."""
    return call.result.to(getattr(call.torch, name)).to(call.result.dtype)


@as_change
def into_operand(call: FunctionCall, path: Path) -> Any:
    """The change that writes the result into an operand, which other readers of that see."""
    return taken(call.arguments, path).copy_(call.run())


@as_change
def another_value(call: FunctionCall, path: Path, value: Value) -> Any:
    """The change that takes an operand from what an earlier call has returned."""
    return call.run(**put(call.arguments, path, earlier_value(call, value)))


def earlier_value(call: FunctionCall, value: Value) -> Any:
    """A tensor that an earlier call of this run has returned."""
    return call.earlier[value.key][value.index]


def place(operation: Operation) -> str:
    """Words for a call: its name and line."""
    return f"{name_of(operation)}{' in ' if operation.line else ''}{operation.line.partition(': ')[0]}"
