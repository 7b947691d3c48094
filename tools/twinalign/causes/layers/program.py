"""The program of a unit: the calls that it makes, in order, and which of their values each of them is given."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import ENTRY, HANDED, LAYER, UNIT, FunctionCall, Key
from twinalign.causes.layers.subject import LayerSubject, line_within
from twinalign.replay.code_lines import Print, print_of, same_as_one_of
from twinalign.replay.wrong_unit import rewriting

Path = tuple[Any, ...]
"""Where a value stands in the arguments of a call: an argument's name, then places in tuples and parts of slices."""
_LITERAL = re.compile(r"(?<![\w.])\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_OF_SLICE = ("start", "stop", "step")
_WITHOUT_RESULT = (HANDED, ENTRY, UNIT)


@dataclasses.dataclass(frozen=True)
class Value:
    """The tensor number `index` that a call returned."""

    key: Key
    index: int = 0


@dataclasses.dataclass(frozen=True)
class Operand:
    """A tensor among the arguments, or in the result, of a call."""

    shape: tuple[int, ...]
    kind: str
    """Kind of its dtype by numpy's letter: floating `f`, integer `i`, bool `b`, complex `c`."""
    value: Value | None
    name: str | None
    """The parameter or buffer that it is."""


@dataclasses.dataclass(eq=False)
class Operation:
    """A call of the program."""

    key: Key
    arguments: Mapping[str, Any]
    """With an `Operand` for each tensor."""
    results: list[Operand]
    line: str
    position: int
    in_place: bool
    known: bool = False
    """Whether the port's own code computes these values, too."""
    group: int = 0
    """Which of the calls of its line it is; one that is made again, in a loop or another call, has the same number."""

    @property
    def name(self) -> str:
        return self.key[0]

    def atoms(self) -> list[tuple[Path, Any]]:
        """Everything in the arguments that is no container."""
        return list(_atoms(dict(self.arguments), ()))

    def operands(self) -> list[tuple[Path, Operand]]:
        return [(path, value) for path, value in self.atoms() if isinstance(value, Operand)]


@dataclasses.dataclass
class Program:
    """The operations of a unit in their order.

    Attributes:
        operations: those that the unit's own code makes, and layers and functions below it.
        literals: numbers that are written in the code of either side.
        parameters: the unit's own parameters and buffers by name.
    """

    operations: list[Operation]
    literals: list[float]
    parameters: Mapping[str, Any]

    @functools.cached_property
    def by_key(self) -> dict[Key, Operation]:
        return {operation.key: operation for operation in self.operations}

    @functools.cached_property
    def readers(self) -> dict[Value, list[tuple[Operation, Path]]]:
        found: dict[Value, list[tuple[Operation, Path]]] = {}
        for operation in self.operations:
            for path, operand in operation.operands():
                if operand.value is not None:
                    found.setdefault(operand.value, []).append((operation, path))
        return found

    def frontier(self) -> list[Operation]:
        """Operations from which a way leads to an end of the unit on which no value is one that the port has, too."""
        settled: set[Key] = set()
        for operation in reversed(self.operations):
            readers = [
                r for at in range(len(operation.results)) for r, _ in self.readers.get(Value(operation.key, at), ())
            ]
            if operation.known or (readers and all(reader.key in settled for reader in readers)):
                settled.add(operation.key)
        return [operation for operation in self.operations if operation.key not in settled]

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Lengths of axes, without 0 and 1."""
        shapes = [result.shape for operation in self.operations for result in operation.results]
        return sorted({size for shape in shapes for size in shape if size > 1})


def program_of(subject: LayerSubject) -> Program:
    """Run the unit once and write down its program."""
    backend = rewriting()
    operations: list[Operation] = []
    values: dict[int, tuple[Any, Value]] = {}
    steps = getattr(subject.unit, "steps", ())
    outside = sys._getframe().f_code

    def operand(tensor: Any, name_of: Callable[[Any], str | None]) -> Operand:
        known = values.get(id(tensor))
        return Operand(tuple(tensor.shape), backend.kind_of(tensor), known[1] if known else None, name_of(tensor))

    def handle(call: FunctionCall) -> Any:
        given = {
            n: _described(v, lambda t: operand(t, call.name_of)) for n, v in call.arguments.items() if n != "output"
        }
        returned = call.run()
        tensors = list(backend.tensors_in(call["output"] if call.name in (LAYER, UNIT) else returned))
        if call.name == UNIT:
            given = {"input": tuple(operand(tensor, call.name_of) for tensor in tensors)}
        elif call.name in (LAYER, HANDED, ENTRY):
            given = {name: value for name, value in given.items() if name == "input" and call.name == HANDED} | {
                name: call[name] for name in ("path",) if call.name in (LAYER, HANDED)
            }
        results = []
        if call.name not in (UNIT, HANDED):
            for at, tensor in enumerate(tensors):
                values[id(tensor)] = tensor, Value(call.key, at)
                results.append(operand(tensor, call.name_of))
        prints = [step["print"] for step in steps]
        known = bool(prints) and bool(results) and all(is_known(prints, tensor) for tensor in tensors)
        operations.append(
            Operation(call.key, given, results, line_within(outside), len(operations), call.in_place, known)
        )
        return returned

    with backend.unchanged(subject.module), backend.intercepting(subject.module, handle):
        subject.unit.run()
    _group(operations)
    texts = [*(operation.line.partition(": ")[2] for operation in operations), *(step["source"] for step in steps)]
    literals = {float(found) for text in dict.fromkeys(texts) for found in _LITERAL.findall(text)}
    literals |= {float(value) for value in subject.port_numbers.values()}
    own = (
        {}
        if subject.module is None
        else {**dict(subject.module.named_buffers()), **dict(subject.module.named_parameters())}
    )
    return Program(operations, sorted(literals), own)


def is_known(prints: Sequence[Print], value: Any) -> bool:
    """Whether a value is a floating-point tensor of more than one element that is among these."""
    if not rewriting().is_tensor(value):
        return False
    array = np.asarray(value.detach().cpu().numpy())
    return array.dtype.kind == "f" and array.size > 1 and same_as_one_of(print_of(array), prints)


def is_rearranged(before: Any, after: Any) -> bool:
    """Whether two tensors have the same values in another order."""
    if not (rewriting().is_tensor(before) and rewriting().is_tensor(after)) or before.numel() != after.numel():
        return False
    return bool((before.flatten().sort().values == after.flatten().sort().values).all())


def _group(operations: Sequence[Operation]) -> None:
    """Number the calls of each line, beginning anew where the line runs again."""
    lines: dict[str, list[Operation]] = {}
    for operation in operations:
        lines.setdefault(operation.line, []).append(operation)
    for found in lines.values():
        names = [operation.name for operation in found]
        lengths = [
            n for n in range(1, len(names) + 1) if len(names) % n == 0 and names == names[:n] * (len(names) // n)
        ]
        for at, operation in enumerate(found):
            operation.group = at % lengths[0]


def _described(value: Any, operand: Callable[[Any], Operand]) -> Any:
    if rewriting().is_tensor(value):
        return operand(value)
    if isinstance(value, (tuple, list)):
        items = [_described(item, operand) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, slice):
        return slice(*(_described(getattr(value, part), operand) for part in _OF_SLICE))
    return value


def _atoms(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        parts: Any = value.items()
    elif isinstance(value, (tuple, list)):
        parts = enumerate(value)
    elif isinstance(value, slice):
        parts = [(part, getattr(value, part)) for part in _OF_SLICE]
    else:
        yield path, value
        return
    for name, part in parts:
        yield from _atoms(part, (*path, name))


def taken(value: Any, path: Path) -> Any:
    """What stands at a place in arguments."""
    for part in path:
        value = getattr(value, part) if isinstance(value, slice) else value[part]
    return value


def put(value: Any, path: Path, new: Any) -> Any:
    """The same arguments with something else in one place."""
    if not path:
        return new
    first, rest = path[0], path[1:]
    if isinstance(value, slice):
        return slice(
            *(put(getattr(value, part), rest, new) if part == first else getattr(value, part) for part in _OF_SLICE)
        )
    if isinstance(value, Mapping):
        return {**value, first: put(value[first], rest, new)}
    items = [put(item, rest, new) if at == first else item for at, item in enumerate(value)]
    return items if isinstance(value, list) else tuple(items)
