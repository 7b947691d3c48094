"""The units matched between two models: layers of a known kind as a whole, a model's own tensors one by one."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

from twinalign.convert import reparametrised, storage
from twinalign.convert.layout import Layer
from twinalign.convert.storage import Stored

Signature = tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]
"""Kind and the canonical shapes by slot: what two partners have in common whatever their names."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """One thing to be matched."""

    name: str
    """Path of the layer, or the key of a tensor of the model's own."""
    path: str
    """Path of the layer."""
    kind: str
    signature: Signature
    stored: tuple[Stored, ...]

    def describe(self) -> str:
        """As messages show it: `features.0 (convolution, weight 64×3×7×7)`."""
        shapes = ", ".join(f"{name} {_sizes(shape)}" for name, shape in self.signature[1])
        return f"{self.name or 'the model itself'} ({self.kind}: {shapes})"


def units_of(framework: str, layers: Sequence[Layer]) -> list[Unit]:
    """The units of a model in registration order; tensors that only stand in for others (counters, ties) left out."""
    found = []
    for layer in layers:
        kind = storage.kind_of(framework, layer)
        stored = reparametrised.storage_of(framework, layer)
        if kind != storage.RAW:
            shapes: dict[str, tuple[int, ...]] = {}
            for part in stored:
                for slot in part.slots:
                    if slot.fill is None:
                        shape = (math.prod(slot.shape),) if part.flexible else _squeezed(slot.shape)
                        shapes.setdefault(slot.name, shape)
            signature = (kind, tuple(sorted(shapes.items())))
            found.append(Unit(layer.path, layer.path, kind, signature, tuple(stored)))
            continue
        for part in stored:
            if part.entry.tied_to is None:
                signature = (kind, (("", part.slots[0].shape),))
                found.append(Unit(part.entry.key, layer.path, kind, signature, (part,)))
    return found


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def differences(reference: Sequence[Unit], paddle: Sequence[Unit]) -> list[str]:
    """What either side has that the other lacks, in words; empty where the two could be one network.

    First come units that both have by one name in other shapes, then those of a signature that the other side has fewer
    of.
    """
    surplus = _surplus(reference, paddle), _surplus(paddle, reference)
    mine, other = ({unit.name: unit for units, _ in found.values() for unit in units} for found in surplus)
    shared = [name for name in mine if name in other and mine[name].kind == other[name].kind]
    lines = [_other_shapes(mine[name], other[name]) for name in shared]
    for side, found in zip(("reference", "paddle"), surplus, strict=True):
        for units, count in found.values():
            left = [unit for unit in units if unit.name not in shared]
            more = count - (len(units) - len(left))
            if more > 0:
                some = "" if more == len(left) else f"{more} of "
                lines.append(f"only the {side} model has {some}{', '.join(unit.describe() for unit in left[:4])}")
    return lines


def _surplus(mine: Sequence[Unit], other: Sequence[Unit]) -> dict[Signature, tuple[list[Unit], int]]:
    """The units of each signature of which the other side has fewer, and how many fewer."""
    there = Counter(unit.signature for unit in other)
    here: dict[Signature, list[Unit]] = {}
    for unit in mine:
        here.setdefault(unit.signature, []).append(unit)
    return {key: (units, len(units) - there[key]) for key, units in here.items() if len(units) > there[key]}


def _other_shapes(reference: Unit, paddle: Unit) -> str:
    shapes, others = dict(reference.signature[1]), dict(paddle.signature[1])
    parts = [
        f"{name or 'shape'} {_sizes(shapes.get(name))} against {_sizes(others.get(name))}"
        for name in {**shapes, **others}
        if shapes.get(name) != others.get(name)
    ]
    return f"`{reference.name}` has {', '.join(sorted(parts, reverse=True))} in the paddle model"


def _sizes(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else "×".join(map(str, shape)) or "scalar"
