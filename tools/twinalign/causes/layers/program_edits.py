"""The closed vocabulary of edits: what one call of a program, or two, can be in its place; each edit is general."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

from twinalign.backends.torch.reference_only.operations import GRADIENT_MODE, HANDED, LAYER, Change, FunctionCall, Key
from twinalign.causes.layers.changed_calls import as_change
from twinalign.causes.layers.edit import (
    Edit,
    Edits,
    added_to_result,
    another_value,
    argument_name,
    done_twice,
    earlier_value,
    into_operand,
    name_of,
    on_operand,
    one_edit,
    operand_of,
    place,
    with_argument,
)
from twinalign.causes.layers.edits_of_calls import arranged, called, cast, kin, other_values, slices, turned
from twinalign.causes.layers.program import Operand, Operation, Path, Program, Value, put, taken

_MOST_VALUES = 12
"""So many values of the same shape take the place of an operand, the nearest first."""
_BINARY = (
    "sub",
    "div",
    "pow",
    "matmul",
    "where",
    "cat",
    "stack",
    "lt",
    "le",
    "gt",
    "ge",
    "bmm",
    "einsum",
    "masked_fill",
)
NO_STEPS = (
    GRADIENT_MODE,
    "clone",
    "detach",
    "requires_grad",
    "to",
    "contiguous",
    "dim",
    "size",
    "is_floating_point",
    "data_ptr",
    "numel",
)
"""What changes no value, so that what it is given and what it gives are tried in other calls."""


def exchanged(program: Program, operation: Operation) -> Edits:
    """Two operands change places."""
    atoms = operation.atoms()
    if operation.name in _BINARY or operation.name.endswith("_loss"):
        for (one, _), (two, _) in itertools.combinations(atoms, 2):
            if isinstance(taken(operation.arguments, one), Operand) or isinstance(
                taken(operation.arguments, two), Operand
            ):
                yield one_edit(
                    operation, f"`{argument_name(one)}` and `{argument_name(two)}` are exchanged", _exchange(one, two)
                )
    for first, second in itertools.combinations(range(len(operation.results)), 2):
        text = f"parts {first} and {second} of what it returns are exchanged"
        yield one_edit(operation, text, _parts(first, second))


def _exchange(one: Path, two: Path) -> Change:
    def change(call: FunctionCall) -> Any:
        first, second = taken(call.arguments, one), taken(call.arguments, two)
        return call.run(**put(put(call.arguments, one, second), two, first))

    return change


def _parts(one: int, two: int) -> Change:
    def change(call: FunctionCall) -> Any:
        parts = list(call.result)
        parts[one], parts[two] = parts[two], parts[one]
        return tuple(parts)

    return change


def left_out(program: Program, operation: Operation) -> Edits:
    """The operation is left out, done twice, or its result has another sign or is taken from one."""
    for path, operand in operation.operands():
        if operand.kind == "f" and operation.name not in (HANDED, LAYER):
            yield one_edit(
                operation,
                f"left out, `{argument_name(path)}` is what remains",
                operand_of(path),
            )
    if not operation.results or operation.results[0].kind not in "fb" or operation.name == LAYER:
        return
    first = operation.operands()[0] if operation.operands() else None
    if first is not None and first[1].shape == operation.results[0].shape:
        yield one_edit(operation, "done twice", done_twice(first[0]))
        yield one_edit(
            operation,
            "what it is given is added once more",
            added_to_result(first[0]),
        )
    if operation.results[0].kind == "b":
        yield one_edit(operation, "its result is inverted", lambda call: call.result.logical_not())
    elif len(operation.results) == 1:
        yield one_edit(operation, "its result has the other sign", lambda call: -call.result)
        yield one_edit(operation, "one minus its result", lambda call: 1.0 - call.result)


def elsewhere(program: Program, operation: Operation) -> Edits:
    """An operand is another tensor of the same shape."""
    for path, operand in operation.operands():
        others: list[tuple[int, Value, str]] = []
        for other in program.operations[: operation.position]:
            for at, result in enumerate(other.results):
                value = Value(other.key, at)
                if result.kind == operand.kind and value != operand.value and result.shape == operand.shape:
                    part = f"part {at} of " if len(other.results) > 1 else ""
                    others.append((operation.position - other.position, value, f"{part}{place(other)}"))
        for _, value, text in sorted(others, key=lambda item: item[0])[:_MOST_VALUES]:
            yield one_edit(
                operation, f"`{argument_name(path)}` is what comes from {text}", another_value(path, value), value.key
            )
        for name, tensor in program.parameters.items():
            if operand.name not in (None, name) and tuple(tensor.shape) == operand.shape:
                yield one_edit(operation, f"{name} in place of {operand.name}", with_argument(path, tensor))


def readers_exchanged(program: Program, operation: Operation) -> Edits:
    """What reads one value reads the other, and the other way round."""
    for at, result in enumerate(operation.results):
        mine = Value(operation.key, at)
        for other in program.operations[max(0, operation.position - 16) : operation.position]:
            for to, theirs in enumerate(other.results):
                value = Value(other.key, to)
                pairs = [(mine, value), (value, mine)]
                if theirs.shape != result.shape or theirs.kind != result.kind:
                    continue
                changes: dict[Key, list[tuple[Any, Value]]] = {}
                for read, instead in pairs:
                    for reader, path in program.readers.get(read, ()):
                        if reader.position > operation.position:
                            changes.setdefault(reader.key, []).append((path, instead))
                if changes:
                    text = f"what it gives and what comes from {place(other)} are exchanged where they are used"
                    made = {key: _reading(places) for key, places in changes.items()}
                    yield Edit(text, made, frozenset((mine.key, value.key)))


def _reading(places: list[tuple[Any, Value]]) -> Change:
    def change(call: FunctionCall) -> Any:
        arguments: Any = call.arguments
        for path, value in places:
            arguments = put(arguments, path, earlier_value(call, value))
        return call.run(**arguments)

    return change


def moved(program: Program, operation: Operation) -> Edits:
    """The operation comes after the one that takes its result: f(g(x)) → g(f(x)), x + f(y) → f(x + y)."""
    readers = program.readers.get(Value(operation.key), [])
    mine = [path for path, operand in operation.operands() if operand.kind == "f"]
    if operation.name in (HANDED, LAYER) or len(operation.results) != 1:
        return
    for reader, _ in readers:
        if reader.name in (HANDED, LAYER, "unit"):
            continue
        for own in mine:
            kept: dict[str, FunctionCall] = {}
            text = f"done behind {place(reader)}, not before, with `{argument_name(own)}`"
            yield Edit(text, {operation.key: _held(kept, own), reader.key: _after(kept, own)})


def before_layer(program: Program, operation: Operation) -> Edits:
    """The operation is done to what a child layer is given, not to what that returns."""
    for path, operand in operation.operands():
        layer = program.by_key.get(operand.value.key) if operand.value is not None else None
        if layer is None or layer.name != LAYER or operation.name in (HANDED, LAYER, "unit"):
            continue
        entered = [one for one in program.operations[: layer.position] if one.name == HANDED]
        given = next((one for one in reversed(entered) if one.arguments["path"] == layer.arguments["path"]), None)
        others = [(p, o.value) for p, o in operation.operands() if p != path]
        if given is not None and all(value is not None for _, value in others):
            known = [(p, value) for p, value in others if value is not None]
            changes = {given.key: _done_to_input(operation, path, known), operation.key: operand_of(path)}
            text = f"done to what {name_of(layer)} is given, not to what it returns"
            yield Edit(text, changes, frozenset(value.key for _, value in known))


@as_change
def _done_to_input(call: FunctionCall, operation: Operation, path: Path, others: list[tuple[Path, Value]]) -> Any:
    arguments = put(dict(operation.arguments), path, call["input"][0])
    for other, value in others:
        arguments = put(arguments, other, earlier_value(call, value))
    done = called(operation.name)(dataclasses.replace(call, arguments=arguments))
    return call.run(input=(done, *call["input"][1:]))


def _held(kept: dict[str, FunctionCall], path: Path) -> Change:
    def change(call: FunctionCall) -> Any:
        kept["call"] = call
        return taken(call.arguments, path)

    return change


def _after(kept: dict[str, FunctionCall], path: Path) -> Change:
    def change(call: FunctionCall) -> Any:
        first = kept.pop("call")
        return first.run(**put(first.arguments, path, call.run()))

    return change


def gradients(program: Program, operation: Operation) -> Edits:
    """The gradient stops, goes on, or is counted twice."""
    if operation.name == "detach":
        yield one_edit(operation, "left out, so that the gradient goes on", lambda call: call["input"])
    for path, operand in operation.operands():
        if operand.kind == "f":
            for text, change in (("stops at", lambda t: t.detach()), ("is doubled at", lambda t: 2.0 * t - t.detach())):
                yield one_edit(operation, f"the gradient {text} `{argument_name(path)}`", on_operand(path, change))


def in_place(program: Program, operation: Operation) -> Edits:
    """The result is written into what the call was given, or is not."""
    if operation.in_place:
        yield one_edit(operation, "not in place", lambda call: call.apart())
    elif operation.operands() and operation.results and operation.name not in (LAYER, HANDED):
        path, operand = operation.operands()[0]
        if operand.value and operand.shape == operation.results[0].shape:
            yield one_edit(
                operation,
                "in place, which its other readers see",
                into_operand(path),
            )


VOCABULARY: tuple[Callable[[Program, Operation], Edits], ...] = (
    exchanged, kin, left_out, slices, other_values, moved, before_layer, turned, arranged, elsewhere,
    readers_exchanged, in_place, cast,
)  # fmt: skip
