"""The program of a unit: the calls that it makes, in order, and which of their values each of them is given."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.backends.torch.reference_only.operations import Key, Path, Site, Value
from twinalign.causes.layers.subject import LayerSubject

_LITERAL = re.compile(r"(?<![\w.])\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


@dataclasses.dataclass
class Program:
    """The operations of a unit in their order.

    Attributes:
        operations: those that the unit's own code makes, and layers and functions below it.
        literals: numbers that are written in the code of either side.
        parameters: the unit's own parameters and buffers by name.
        mended: whether something is changed already, so that numbers that nobody wrote say nothing.
    """

    operations: list[Site]
    literals: list[float]
    parameters: Mapping[str, Any]
    mended: bool = False

    @functools.cached_property
    def by_key(self) -> dict[Key, Site]:
        return {operation.key: operation for operation in self.operations}

    @functools.cached_property
    def readers(self) -> dict[Value, list[tuple[Site, Path]]]:
        found: dict[Value, list[tuple[Site, Path]]] = {}
        for operation in self.operations:
            for path, operand in operation.operands():
                if operand.value is not None:
                    found.setdefault(operand.value, []).append((operation, path))
        return found

    def frontier(self) -> list[Site]:
        """Calls from which a way leads to an end of the unit on which no value is one that the port has, too."""
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
    """The program that the unit ran by when it was traced."""
    operations = subject.traced[1]
    _group(operations)
    texts = [operation.line.partition(": ")[2] for operation in operations]
    texts += [step["source"] for step in getattr(subject.unit, "steps", ())]
    literals = {float(found) for text in dict.fromkeys(texts) for found in _LITERAL.findall(text)}
    literals |= {float(value) for value in subject.port_numbers.values()}
    module = subject.module
    own = {} if module is None else {**dict(module.named_buffers()), **dict(module.named_parameters())}
    return Program(operations, sorted(literals), own, subject.mended is not None)


def _group(operations: Sequence[Site]) -> None:
    """Number the calls of each line, beginning anew where the line runs again."""
    lines: dict[str, list[Site]] = {}
    for operation in operations:
        lines.setdefault(operation.line, []).append(operation)
    for found in lines.values():
        names = [operation.name for operation in found]
        lengths = [
            n for n in range(1, len(names) + 1) if len(names) % n == 0 and names == names[:n] * (len(names) // n)
        ]
        for at, operation in enumerate(found):
            operation.group = at % lengths[0]
