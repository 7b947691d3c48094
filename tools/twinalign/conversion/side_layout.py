"""One side of a conversion: its layers, and every stored tensor under the names that both sides share."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.backends import state_layout as layout
from twinalign.backends.state_layout import Layer, StateEntry
from twinalign.conversion import reparametrised, storage
from twinalign.conversion.linear_parts import Rows, split_slots
from twinalign.conversion.rename_rules import Renaming, reference_path
from twinalign.conversion.storage import Slot, Stored


@dataclasses.dataclass
class Side:
    """One side of a conversion: its layers, and every stored tensor under its slots' common names."""

    framework: str
    layers: list[Layer]
    stored: list[Stored]
    layer_of: dict[str, Layer]
    """The layer of each key."""
    slot_names: dict[str, tuple[str, ...]]
    """Key → the common names of its slots, one each."""
    non_persistent: dict[str, StateEntry]


def read_side(
    framework: str,
    entries: Sequence[StateEntry | Mapping[str, Any]],
    renaming: Renaming,
    paths: Mapping[str, str],
    slots: Mapping[tuple[str, str], str] | None = None,
    rows: Rows | None = None,
) -> Side:
    """Group a layout into layers and give every slot its name on the paddle side.

    `paths` gives the paddle path of each torch layer that was matched, `slots` the names of slots of torch layers that
    stand for several of paddle's or are part of one; other layers keep their names. `rows` splits Linear layers.
    """
    known = [StateEntry.of(entry) for entry in entries]
    layers = layout.group_layers(known, lambda bases: storage.absorbs(framework, bases))
    side = Side(framework, layers, [], {}, {}, {entry.key: entry for entry in known if not entry.persistent})
    for layer in layers:
        for part in reparametrised.storage_of(framework, layer):
            part = split_slots(part, rows[layer.path]) if rows and rows.get(layer.path) else part
            side.stored.append(part)
            side.layer_of[part.entry.key] = layer
            side.slot_names[part.entry.key] = tuple(
                (framework == "torch" and slots and slots.get((layer.path, slot.name)))
                or _common_name(framework, layer, part, slot, renaming, paths)
                for slot in part.slots
            )
    order = {entry.key: index for index, entry in enumerate(known)}
    side.stored.sort(key=lambda part: order[part.entry.key])
    return side


def _common_name(
    framework: str, layer: Layer, part: Stored, slot: Slot, renaming: Renaming, paths: Mapping[str, str]
) -> str:
    if framework == "paddle":
        return f"{layer.path}.{slot.name}" if layer.path else slot.name
    exact = renaming.rules.get(part.entry.key)
    if exact is not None and len(part.slots) == 1:
        renaming.used.add(part.entry.key)
        return by_key(exact)
    if layer.path in paths:
        path = paths[layer.path]
        return f"{path}.{slot.name}" if path else slot.name
    path = reference_path(layer)
    return renaming.apply(f"{path}.{slot.name}" if path else slot.name)


def by_key(paddle_key: str) -> str:
    """The common name of a tensor that a rename rule pairs by its exact key, whatever its slot is called."""
    return f"key {paddle_key}"
