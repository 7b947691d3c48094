"""The program of a unit: the calls that it makes, in order, and which of their values each of them is given."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import (
    HANDED,
    LAYER,
    UNIT,
    Key,
    Path,
    Site,
    TensorFacts,
    Value,
    atoms,
)
from twinalign.replay.code_lines import Print, print_of
from twinalign.replay.shared_values import same_as_one_of
from twinalign.replay.wrong_unit import rewriting

Ends = Mapping[tuple[str, int], bool]
"""Path of a child layer that returns what was recorded, and number of its call → whether it is given wrong values."""
OUTPUT = "", 0
"""Stands in `Ends` for what the unit returns."""
_LONG, _NEAR = 200, 3
"""Of a program with more operations than the first, those come first that are at most so many behind a known value."""


@dataclasses.dataclass
class Program:
    """The operations of a unit in their order.

    Attributes:
        operations: those that the unit's own code makes, and layers and functions below it.
        literals: numbers that are written in the code of either side.
        parameters: the unit's own parameters and buffers by name.
        mended: whether something is changed already, so that numbers that nobody wrote say nothing.
        wrong_ends: where values leave the unit's own code, as `wrong_ends` gives them; None if that is not known.
    """

    operations: list[Site]
    literals: list[float]
    parameters: Mapping[str, Any]
    mended: bool = False
    wrong_ends: Ends | None = None

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

    def entry_of(self, layer: Site) -> Site | None:
        """The call that hands a child layer what it is given; None for any other call."""
        entered = [one for one in self.operations[: layer.position] if layer.name == LAYER and one.name == HANDED]
        return next((one for one in reversed(entered) if one.arguments["path"] == layer.arguments["path"]), None)

    @functools.cached_property
    def leading(self) -> set[Key]:
        """Calls from which a way leads to a wrong value: no other one changes any, however it is made.

        What is changed in place may be seen through other tensors, and numbers may steer the code.
        """
        ends = self.wrong_ends
        if ends is None or (ends[OUTPUT] and all(one.name != UNIT for one in self.operations)):
            return {operation.key for operation in self.operations}
        calls = self._calls_of_layers()
        found = {key for key, call in calls.items() if ends.get(call)}
        wrong = frozenset(found)
        for operation in reversed(self.operations):
            leads, names = operation.key in found, list(operation.arguments)
            if operation.name == UNIT:
                leads = ends[OUTPUT]
            elif operation.name == LAYER:
                names = ["input", "given"] if operation.key in wrong else []
            elif operation.name != HANDED:
                leads = leads or _is_seen(operation)
            if leads:
                found |= {operation.key, *operation.handing_on, *_givers(operation, names)}
            if leads and operation.name == LAYER and calls[operation.key] not in ends:
                entry = self.entry_of(operation)  # its code runs, on what it was handed
                found |= set() if entry is None else {entry.key}
        return found

    def _calls_of_layers(self) -> dict[Key, tuple[str, int]]:
        """Calls that enter or end a child layer's call → the layer's path, and which of its calls that is."""
        counts, found = Counter[tuple[str, str]](), dict[Key, tuple[str, int]]()
        for operation in self.operations:
            if operation.name in (HANDED, LAYER):
                path = operation.arguments["path"]
                found[operation.key] = path, counts[operation.name, path]
                counts[operation.name, path] += 1
        return found

    def frontier(self) -> list[Site]:
        """Calls from which a way leads to an end of the unit on which no value is one that the port has, too."""
        settled = self.by_key.keys() - self.leading
        for operation in reversed(self.operations):
            readers = [
                r for at in range(len(operation.results)) for r, _ in self.readers.get(Value(operation.key, at), ())
            ]
            if operation.known or (readers and all(reader.key in settled for reader in readers)):
                settled.add(operation.key)
        return [operation for operation in self.operations if operation.key not in settled]

    @property
    def is_long(self) -> bool:
        return len(self.operations) > _LONG

    def near(self) -> list[Site]:
        """The first calls of the frontier, and those of their lines when these run again; in a short program all.

        What runs in loops has a long frontier, of which all but the beginning only goes on with values that are wrong.
        """
        frontier, behind = self.frontier(), dict[Key, int]()
        if not self.is_long:
            return frontier
        for operation in frontier:
            given = [operand.value.key for _, operand in operation.operands() if operand.value is not None]
            behind[operation.key] = 1 + max((behind[key] for key in given if key in behind), default=-1)
        lines = {(one.line, one.name) for one in frontier if behind[one.key] <= _NEAR}
        return [operation for operation in frontier if (operation.line, operation.name) in lines]

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Lengths of axes, without 0 and 1."""
        shapes = [result.shape for operation in self.operations for result in operation.results]
        return sorted({size for shape in shapes for size in shape if size > 1})


def wrong_ends(wrong: Iterable[str], layers: Sequence[tuple[str, str]]) -> Ends | None:
    """Where values leave the unit's own code, and whether they are wrong there; None if something else is wrong.

    Args:
        wrong: names of the unit's values that differ.
        layers: path and label of each call of a layer that returns what was recorded, in their order.
    """
    names, found, counts = list(wrong), dict[tuple[str, int], bool](), Counter[str]()
    for path, label in layers:
        found[path, counts[path]] = any(name.startswith(f"input.{label}.") for name in names)
        counts[path] += 1
    found[OUTPUT] = any(name.startswith("output.") for name in names)
    return found if all(name.startswith(("input.", "output.")) for name in names) else None


def _is_seen(operation: Site) -> bool:
    """Whether a call may change what comes later though nothing reads what it returns."""
    return operation.in_place or not operation.results


def _givers(operation: Site, names: Sequence[str]) -> set[Key]:
    """The calls that have returned these arguments."""
    given = (value for name in names for _, value in atoms(operation.arguments.get(name)))
    return {one.value.key for one in given if isinstance(one, TensorFacts) and one.value is not None}


def group_calls(operations: Sequence[Site]) -> None:
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


def matching(prints: Sequence[Print], value: Any) -> list[int]:
    """Which of these a value is, if it is a floating-point tensor of more than one element."""
    if not rewriting().is_tensor(value):
        return []
    array = np.asarray(value.detach().cpu().resolve_conj().resolve_neg().numpy())
    mine = print_of(array) if array.dtype.kind == "f" and array.size > 1 else None
    return [at for at, one in enumerate(prints) if mine and same_as_one_of(mine, [one])]
