"""The things to match between two models: layers of a known kind as a whole, a model's own tensors one by one."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from twinalign.backends.state_layout import Layer, StateEntry
from twinalign.conversion import reparametrised, storage
from twinalign.conversion.storage import Stored

Signature = tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]
"""Kind and the canonical shapes by slot: what two partners have in common whatever their names."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Where the slots of a matchable are that is a part of a layer, or more than one layer holds."""

    slots: Mapping[str, tuple[str, str]]
    """Slot → path of the layer that holds it, and the slot's name there."""
    given: int | None
    """Which of the layer's inputs it receives; None: whatever its path is called with."""


@dataclasses.dataclass(frozen=True)
class Matchable:
    """One layer or loose tensor to be matched."""

    name: str
    """Path of the layer, or the key of a tensor of the model's own."""
    path: str
    """Path of the layer."""
    kind: str
    signature: Signature
    stored: tuple[Stored, ...]
    by_key: bool = False
    """Whether its tensors are paired one by one: they have names of the model's own."""
    part: Part | None = None
    """None: it is a whole layer or tensor."""

    @property
    def slot_names(self) -> dict[str, tuple[str, str]]:
        """Slot → path of the layer that holds it, and the slot's name there."""
        return dict(self.part.slots) if self.part else {name: (self.path, name) for name, _ in self.signature[1]}

    @property
    def loose_signature(self) -> Signature:
        """Kind and the shape of the largest tensor, where the others (a bias) differ between the sides."""
        sizes = sorted(self.signature[1], key=lambda named: math.prod(named[1]))
        return self.signature[0], tuple(sizes[-1:])

    @property
    def is_trained(self) -> bool:
        """Whether one of its tensors gets gradients; none does in a target network, or a frozen part."""
        return any(part.entry.trainable for part in self.stored)

    @property
    def is_matrix(self) -> bool:
        """Whether it is a single matrix, which another model may hold as its transpose."""
        slots = [slot for part in self.stored for slot in part.slots]
        plain = self.kind in (storage.RAW, "linear", "convolution", "embedding") and not self.part
        return plain and len(slots) == 1 and sum(size != 1 for size in slots[0].shape) == 2

    def as_tensor(self) -> Matchable:
        """A layer of one tensor as a tensor of the module above it."""
        (slot,) = (slot for part in self.stored for slot in part.slots)
        return dataclasses.replace(
            self, path=self.path.rpartition(".")[0], kind=storage.RAW, signature=_of_tensor(slot.shape)
        )

    def describe(self) -> str:
        """As messages show it: `features.0 (convolution, weight 64×3×7×7)`."""
        known = self.signature[1] if self.kind != storage.RAW else [("", self.stored[0].slots[0].shape)]
        shapes = ", ".join(f"{name} {_sizes(shape)}" for name, shape in known)
        return f"{self.name or 'the model itself'} ({self.kind}: {shapes})"


def matchables_of(framework: str, layers: Sequence[Layer]) -> list[Matchable]:
    """What to match of a model, in registration order; tensors tied to others are left out."""
    found = []
    for layer in layers:
        kind = storage.kind_of(framework, layer)
        stored = reparametrised.storage_of(framework, layer)
        by_hand = layer.config.get("acts_like") if kind == storage.RAW else None
        if by_hand:
            kind, stored = by_hand["kind"], [_renamed(part, by_hand["slots"]) for part in stored]
        own: Sequence[Stored] = stored if kind == storage.RAW else _added(layer, kind, stored)
        if kind != storage.RAW:
            stored = [part for part in stored if part not in own]
            shapes: dict[str, tuple[int, ...]] = {}
            for part in stored:
                for slot in part.slots:
                    if slot.fill is None:
                        shape = (math.prod(slot.shape),) if part.flexible else without_ones(slot.shape)
                        shapes.setdefault(slot.name, shape)
            signature = ("linear" if _is_pointwise(kind, stored) else kind, tuple(sorted(shapes.items())))
            found.append(Matchable(layer.path, layer.path, kind, signature, tuple(stored), bool(by_hand)))
        for part in own:
            if part.entry.tied_to is None:
                signature = _of_tensor(part.slots[0].shape)
                found.append(Matchable(part.entry.key, layer.path, storage.RAW, signature, (part,), by_key=True))
    return found


def _added(layer: Layer, kind: str, stored: Sequence[Stored]) -> list[Stored]:
    """What a user's subclass of a layer has beside its weight and bias: an adapter's two matrices."""
    own = kind in ("linear", "convolution", "embedding") and not layer.class_name.startswith(("torch.", "paddle."))
    added = [part for part in stored if part.slots[0].name not in ("weight", "bias")]
    return added if own and len(added) < len(stored) else []


def without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as signatures have it, whichever side has axes of one element."""
    return tuple(size for size in shape if size != 1)


def _of_tensor(shape: tuple[int, ...]) -> Signature:
    """Of a tensor whose axes may be folded on the other side: heads and their width are one axis there."""
    return (storage.RAW, (("", (math.prod(shape),)),))


def with_matrices_as_tensors(mine: Sequence[Matchable], other: Sequence[Matchable]) -> list[list[Matchable]]:
    """Both sides, with layers that are a single matrix (an embedding, a Linear without a bias) as tensors where the
    other side keeps that in a parameter: a codebook, a projection.
    """
    alone = surplus(mine, other), surplus(other, mine)
    matrices = {
        signature
        for here, there in (alone, alone[::-1])
        for signature, (matchables, _) in here.items()
        if signature[0] != storage.RAW and matchables[0].is_matrix and matchables[0].as_tensor().signature in there
    }
    return [[u.as_tensor() if u.signature in matrices else u for u in side] for side in (mine, other)]


def _renamed(part: Stored, slots: Mapping[str, str]) -> Stored:
    return dataclasses.replace(
        part, slots=tuple(dataclasses.replace(slot, name=slots.get(slot.name, slot.name)) for slot in part.slots)
    )


def _is_pointwise(kind: str, stored: Sequence[Stored]) -> bool:
    """Whether it is a convolution of a single point, which a Linear may stand for."""
    shapes = [slot.shape for part in stored for slot in part.slots if slot.name == "weight"]
    return kind == "convolution" and bool(shapes) and all(set(shape[2:]) == {1} for shape in shapes)


def is_constant(framework: str, layer: Layer, entry: StateEntry) -> bool:
    """Whether a tensor is a table or a counter that a model of the user's own makes itself, whole numbers as a rule."""
    whole = entry.dtype in ("bool", "int32", "int64")
    return entry.role == "buffer" and whole and storage.kind_of(framework, layer) == storage.RAW


def differences(reference: Sequence[Matchable], paddle: Sequence[Matchable]) -> list[str]:
    """Descriptions of what only one side has; empty if the two could be the same network.

    Layers with equal names but different shapes come first, then those whose signature occurs less often on the other
    side.
    """
    of_sides = surplus(reference, paddle), surplus(paddle, reference)
    mine, other = (
        {matchable.name: matchable for matchables, _ in found.values() for matchable in matchables}
        for found in of_sides
    )
    shared = [name for name in mine if name in other and mine[name].signature[0] == other[name].signature[0]]
    lines = [_other_shapes(mine[name], other[name]) for name in shared]
    for side, found in zip(("reference", "paddle"), of_sides, strict=True):
        for matchables, count in found.values():
            left = [matchable for matchable in matchables if matchable.name not in shared]
            more = count - (len(matchables) - len(left))
            if more > 0:
                some = "" if more == len(left) else f"{more} of "
                lines.append(
                    f"only the {side} model has {some}{', '.join(matchable.describe() for matchable in left[:4])}"
                )
    return lines


def surplus(mine: Sequence[Matchable], other: Sequence[Matchable]) -> dict[Signature, tuple[list[Matchable], int]]:
    """The matchables of each signature that occurs less often on the other side, and how many more there are."""
    there = Counter(matchable.signature for matchable in other)
    here: dict[Signature, list[Matchable]] = {}
    for matchable in mine:
        here.setdefault(matchable.signature, []).append(matchable)
    return {
        key: (matchables, len(matchables) - there[key])
        for key, matchables in here.items()
        if len(matchables) > there[key]
    }


def _other_shapes(reference: Matchable, paddle: Matchable) -> str:
    shapes, others = dict(reference.signature[1]), dict(paddle.signature[1])
    parts = [
        f"{name or 'shape'} {_sizes(shapes.get(name))} against {_sizes(others.get(name))}"
        for name in {**shapes, **others}
        if shapes.get(name) != others.get(name)
    ]
    return f"`{reference.name}` has {', '.join(sorted(parts, reverse=True))} in the paddle model"


def _sizes(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else "×".join(map(str, shape)) or "scalar"
