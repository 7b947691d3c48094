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
        shapes = ", ".join(f"{name} {'×'.join(map(str, shape)) or 'scalar'}" for name, shape in self.signature[1])
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
    """Units that the other side has fewer of, by signature, in words; empty where the two could be one network."""
    lines = []
    for side, mine, other in (("reference", reference, paddle), ("paddle", paddle, reference)):
        there = Counter(unit.signature for unit in other)
        here: dict[Signature, list[Unit]] = {}
        for unit in mine:
            here.setdefault(unit.signature, []).append(unit)
        for signature, units in here.items():
            surplus = len(units) - there[signature]
            if surplus > 0:
                some = "" if surplus == len(units) else f"{surplus} of "
                lines.append(f"only the {side} model has {some}{', '.join(unit.describe() for unit in units[:4])}")
    return lines
