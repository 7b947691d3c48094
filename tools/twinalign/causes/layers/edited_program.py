"""Any one edit of the unit's program, from a closed vocabulary: what is tried where no named cause gives the port.

Each edit says, for one call, what is done in its place; those that know no other call are in `edits_of_calls`. Calls of
one line that run again, in a loop or in another call, are edited together first, then each alone; calls at the frontier
(`Program.frontier`) come before all others.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from twinalign.backends.torch.reference_only.operations import (
    GRADIENT_MODE,
    HANDED,
    LAYER,
    UNIT,
    FunctionCall,
    Key,
    Path,
    Site,
    Value,
    put,
    taken,
)
from twinalign.causes.layers import edits_of_calls as of_calls
from twinalign.causes.layers.changed_calls import as_change, called, joined
from twinalign.causes.layers.edits_of_calls import Edits, argument_name, name_of, one_edit, operand_of, with_argument
from twinalign.causes.layers.subject import CallVariant, LayerSubject
from twinalign.causes.registry import Cause, enter
from twinalign.replay.unit_program import Program

_MOST_VALUES = 12
"""So many values of the same shape take the place of an operand, the nearest first."""
_NOT_COMPUTING = ("clone", "detach", "requires_grad", "to", "contiguous")
_ASKING = ("dim", "size", "is_floating_point", "data_ptr", "numel")
NO_STEPS = (GRADIENT_MODE, UNIT, *_NOT_COMPUTING, *_ASKING)
"""What changes no value, so that what it is given and what it gives are tried in other calls."""


def elsewhere(program: Program, operation: Site) -> Edits:
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
            detail = f"`{argument_name(path)}` is what comes from {text}"
            yield one_edit(operation, detail, _reading([(path, value)]), value.key)
        for name, tensor in program.parameters.items():
            if operand.name not in (None, name) and tuple(tensor.shape) == operand.shape:
                yield one_edit(operation, f"{name} in place of {operand.name}", with_argument(path, tensor))


def readers_exchanged(program: Program, operation: Site) -> Edits:
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
                    yield CallVariant(text, made, None, frozenset((mine.key, value.key)))


def earlier_value(call: FunctionCall, value: Value) -> Any:
    """A tensor that an earlier call of this run has returned."""
    return call.earlier[value.key][value.index]


def place(operation: Site) -> str:
    """Words for a call: its name and line."""
    return f"{name_of(operation)}{' in ' if operation.line else ''}{operation.line.partition(': ')[0]}"


@as_change
def _reading(call: FunctionCall, places: list[tuple[Any, Value]]) -> Any:
    arguments: Any = call.arguments
    for path, value in places:
        arguments = put(arguments, path, earlier_value(call, value))
    return call.run(**arguments)


def moved(program: Program, operation: Site) -> Edits:
    """The operation comes after the one that takes its result: f(g(x)) → g(f(x)), x + f(y) → f(x + y)."""
    readers = program.readers.get(Value(operation.key), [])
    mine = [path for path, operand in operation.operands() if operand.kind == "f"]
    if operation.name in (HANDED, LAYER) or len(operation.results) != 1:
        return
    for reader, _ in readers:
        if reader.name in (HANDED, LAYER, UNIT):
            continue
        for own in mine:
            kept: dict[str, FunctionCall] = {}
            text = f"done behind {place(reader)}, not before, with `{argument_name(own)}`"
            yield CallVariant(text, {operation.key: _held(kept, own), reader.key: _after(kept, own)})


def before_layer(program: Program, operation: Site) -> Edits:
    """The operation is done to what a child layer is given, not to what that returns."""
    for path, operand in operation.operands():
        layer = program.by_key.get(operand.value.key) if operand.value is not None else None
        if layer is None or operation.name in (HANDED, LAYER, UNIT):
            continue
        given = program.entry_of(layer)
        others = [(p, o.value) for p, o in operation.operands() if p != path]
        if given is not None and all(value is not None for _, value in others):
            known = [(p, value) for p, value in others if value is not None]
            changes = {given.key: _done_to_input(operation, path, known), operation.key: operand_of(path)}
            text = f"done to what {name_of(layer)} is given, not to what it returns"
            yield CallVariant(text, changes, None, frozenset(value.key for _, value in known))


def layer_before(program: Program, operation: Site) -> Edits:
    """A child layer is called before the one whose result it is given: f(g(x)) → g(f(x))."""
    entry = program.entry_of(operation)
    first = next((program.by_key.get(key) for key in entry.givers), None) if entry is not None else None
    given = program.entry_of(first) if first is not None else None
    if first is not None and given is not None:
        layer, changes = operation.arguments["module"], {operation.key: operand_of(("input",))}
        changes[given.key] = lambda call: call.run(input=(layer(call["input"][0]), *call["input"][1:]))
        yield CallVariant(f"called before {name_of(first)}, not behind it", changes, None)


@as_change
def _done_to_input(call: FunctionCall, operation: Site, path: Path, others: list[tuple[Path, Value]]) -> Any:
    arguments = put(dict(operation.arguments), path, call["input"][0])
    for other, value in others:
        arguments = put(arguments, other, earlier_value(call, value))
    done = called(operation.name)(dataclasses.replace(call, arguments=arguments))
    return call.run(input=(done, *call["input"][1:]))


@as_change
def _held(call: FunctionCall, kept: dict[str, FunctionCall], path: Path) -> Any:
    kept["call"] = call
    return taken(call.arguments, path)


@as_change
def _after(call: FunctionCall, kept: dict[str, FunctionCall], path: Path) -> Any:
    first = kept.pop("call")
    return first.run(**put(first.arguments, path, call.run()))


VOCABULARY: tuple[Callable[[Program, Site], Edits], ...] = (
    of_calls.exchanged, of_calls.left_out, of_calls.kin, of_calls.slices, of_calls.other_values, moved, before_layer,
    layer_before, of_calls.turned, of_calls.arranged, elsewhere, readers_exchanged, of_calls.in_place,
)  # fmt: skip
"""In the order in which they are tried."""


def edits_of(program: Program, backward: bool) -> Edits:
    """Every edit; at the frontier first where the forward pass is wrong, the gradient's first where it is not."""
    frontier = program.operations if backward else program.frontier()
    near = frontier if backward else program.near()
    parts, known = list[list[Site]](), set[Key]()
    for part in (near, frontier, () if program.mended else program.operations):
        lines = {(one.line, one.name) for one in part}  # all calls of them: in a loop some give what the port has, too
        parts.append([one for one in program.operations if (one.line, one.name) in lines and one.key not in known])
        known |= {operation.key for operation in parts[-1]}
    keys = [{operation.key for operation in part} for part in parts]
    for number, operations in enumerate(parts):
        for kind in (of_calls.hooks, of_calls.gradients, *VOCABULARY) if backward else VOCABULARY:
            # Values that the port has, too, may be exchanged where they are read.
            chosen = program.operations if kind is readers_exchanged and operations else operations
            # In a framework's own code no line is known; that a step of it is left out may be said all the same.
            has_line = (one for one in chosen if one.line or kind is of_calls.left_out)
            chosen = [one for one in has_line if one.name not in NO_STEPS]
            for edit in _together_and_alone(program, kind, chosen):
                if kind is not readers_exchanged or number == next(
                    (at for at, part in enumerate(keys) if not part.isdisjoint(edit.changes)), len(keys) - 1
                ):
                    yield edit


def _together_and_alone(program: Program, kind: Callable[..., Edits], operations: list[Site]) -> Edits:
    found: dict[tuple[str, str, int, str], list[CallVariant]] = {}
    for operation in reversed(operations):
        for edit in kind(program, operation):
            text = f"{joined(operation.line, f'`{name_of(operation)}`')}: {edit.detail}"
            found.setdefault((operation.line, name_of(operation), operation.group, text), []).append(edit)
    for (*_, text), same in found.items():
        changes = {key: change for edit in same for key, change in edit.changes.items()}
        yield CallVariant(text, changes, None, frozenset().union(*(edit.reads for edit in same)))
        if 1 < len(same) <= 6:
            for number, edit in enumerate(reversed(same), start=1):
                yield dataclasses.replace(edit, detail=f"{text}, time {number} of {len(same)}")


def _variants(subject: LayerSubject) -> Edits:
    for edit in edits_of(subject.program, subject.backward):
        yield dataclasses.replace(edit, module=subject.module)


for _id, _phase, _text in (
    ("edited_program", "forward", "one step of the code differs"),
    ("edited_program_of_buffers", "state", "one step of the code that updates buffers differs"),
):
    enter(Cause(_id, _phase, _text, LayerSubject, _variants, alone=True))
