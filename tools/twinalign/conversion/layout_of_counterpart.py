"""Derive the other framework's layout of a model from one side's, as the other framework's own layers store it."""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

from twinalign.backends.state_layout import Layer, StateEntry
from twinalign.conversion import layer_rules, reparametrised, storage
from twinalign.conversion.rename_rules import Renaming
from twinalign.conversion.storage import Stored


def counterpart(framework: str, layers: Sequence[Layer]) -> list[StateEntry]:
    """The layout of the same model in the other framework, made of that framework's own layers under the same paths.

    `framework` is the framework of `layers`. Tensors of the model's own classes are expected unchanged.
    """
    make = _to_paddle if framework == "torch" else _to_torch
    found: list[StateEntry] = []
    for layer in layers:
        kind = storage.kind_of(framework, layer)
        found += make(kind, layer, reparametrised.storage_of(framework, layer))
    return found


def renamed_layout(entries: Sequence[StateEntry], renaming: Renaming, framework: str) -> list[StateEntry]:
    """Apply the rename rules to a derived paddle layout; a torch layout keeps its names."""
    if framework != "paddle" or not renaming.rules:
        return list(entries)
    return [
        dataclasses.replace(
            entry,
            key=renaming.apply(entry.key),
            layer=renaming.apply(entry.layer) if entry.layer else entry.layer,
            tied_to=None if entry.tied_to is None else renaming.apply(entry.tied_to),
        )
        for entry in entries
    ]


def _entry(layer: Layer, like: Stored, name: str, shape: tuple[int, ...], bases: tuple[str, ...]) -> StateEntry:
    key = f"{layer.path}.{name}" if layer.path else name
    config = {name: value for name, value in layer.config.items() if name != "weight_layout"}
    leaf = key.rpartition(".")[2]
    return dataclasses.replace(
        like.entry,
        key=key,
        name=leaf,
        shape=shape,
        bases=bases,
        layer=layer.path,
        tied_to=None,
        parameter_name=None,
        config=config,
    )


def _to_paddle(kind: str, layer: Layer, stored: Sequence[Stored]) -> list[StateEntry]:
    bases = storage.framework_class("paddle", kind) or layer.bases
    names = {slot: name for name, slot in layer_rules.PADDLE_SLOTS.get(kind, {}).items()}
    found = []
    for part in stored:
        for slot in part.slots:
            if slot.fill is not None:
                continue
            shape, name = slot.shape, names.get(slot.name, slot.name)
            if kind == "linear" and name.startswith("weight") and len(shape) == 2 and "(" not in name:
                shape = shape[::-1]
            elif kind == "layer norm":
                shape = (math.prod(shape),)
            elif kind == "bilinear" and name == "bias":
                shape = (1, *shape)
            elif kind == "multi-head attention" and re.fullmatch(r"(q|k|v|out)\.(weight|bias)", name):
                name = name.replace(".", "_proj.")
                shape = shape[::-1] if len(shape) == 2 else shape
            elif kind == "recurrent" and (cell := re.fullmatch(r"(\w+?)_(ih|hh|hr)_l(\d+)(_reverse)?", name)):
                found += _paddle_cell(layer, part, stored, cell, shape, bases)
                continue
            name, shape = _norm_parts(name, shape, axis=1 if kind == "linear" else 0, paddle=True, layer=layer)
            found.append(_entry(layer, part, name, shape, bases))
    return _moved_axes(found, kind)


def _paddle_cell(
    layer: Layer,
    part: Stored,
    stored: Sequence[Stored],
    cell: re.Match[str],
    shape: tuple[int, ...],
    bases: tuple[str, ...],
) -> list[StateEntry]:
    """paddle lists every weight of a recurrent layer twice: by layer and by cell."""
    what, where, depth, reverse = cell.groups()
    both_ways = any("_reverse" in other.slots[0].name for other in stored)
    cell_name = f"cell{('_bw' if reverse else '_fw') if both_ways else ''}"
    if where == "hr":
        return [_entry(layer, part, f"{depth}.{cell_name}.{what}_ho", shape[::-1], bases)]
    flat = _entry(layer, part, cell.string, shape, bases)
    twin = _entry(layer, part, f"{depth}.{cell_name}.{what}_{where}", shape, bases)
    return [flat, dataclasses.replace(twin, tied_to=flat.key)]


def _to_torch(kind: str, layer: Layer, stored: Sequence[Stored]) -> list[StateEntry]:
    bases = storage.framework_class("torch", kind) or layer.bases
    slots = {slot.name: (part, slot) for part in stored for slot in part.slots if part.entry.tied_to is None}
    found = []
    if kind == "multi-head attention":
        return _torch_attention(layer, slots, bases)
    for name, (part, slot) in slots.items():
        shape = slot.shape
        if kind == "bilinear" and name == "bias":
            shape = shape[1:]
        if slot.fill is not None:
            continue
        name, shape = _norm_parts(name, shape, axis=0, paddle=False, layer=layer)
        found.append(_entry(layer, part, name, shape, bases))
    if kind == "batch norm" and "running_mean" in slots:
        counter = _entry(layer, slots["running_mean"][0], "num_batches_tracked", (), bases)
        found.append(dataclasses.replace(counter, dtype="int64", role="buffer"))
    return _moved_axes(found, kind)


def _torch_attention(
    layer: Layer, slots: dict[str, tuple[Stored, storage.Slot]], bases: tuple[str, ...]
) -> list[StateEntry]:
    """torch packs q, k and v if they have the same width."""
    found = []
    shapes = [slots[f"{part}.weight"][1].shape for part in "qkv"]
    if len(set(shapes)) == 1:
        found.append(_entry(layer, slots["q.weight"][0], "in_proj_weight", (3 * shapes[0][0], shapes[0][1]), bases))
    else:
        found += [
            _entry(layer, slots[f"{part}.weight"][0], f"{part}_proj_weight", shape, bases)
            for part, shape in zip("qkv", shapes, strict=True)
        ]
    if "q.bias" in slots:
        found.append(_entry(layer, slots["q.bias"][0], "in_proj_bias", (3 * shapes[0][0],), bases))
    for what in ("weight", "bias"):
        if f"out.{what}" in slots:
            part, slot = slots[f"out.{what}"]
            found.append(_entry(layer, part, f"out_proj.{what}", slot.shape, bases))
    return found


def _norm_parts(
    name: str, shape: tuple[int, ...], *, axis: int, paddle: bool, layer: Layer
) -> tuple[str, tuple[int, ...]]:
    """Stored name and shape of a part of a normalised weight (`weight.direction`, `weight.magnitude (…)`)."""
    plain = name.partition(" (")[0]
    for suffix, end in (
        (".direction", "_v"),
        (".magnitude", "_g"),
        (".matrix", "_orig"),
        (".left singular vector", "_u"),
        (".right singular vector", "_v"),
    ):
        if plain.endswith(suffix):
            weight = plain.removesuffix(suffix)
            if suffix == ".magnitude" and shape:
                length = math.prod(shape)
                direction = next(e for e in layer.entries if len(e.shape) >= 2 and length in e.shape)
                shape = (length,) if paddle else (length, *([1] * (len(direction.shape) - 1)))
            return f"{weight}{end}", shape
    return name, shape


def _moved_axes(entries: list[StateEntry], kind: str) -> list[StateEntry]:
    """Swap the axes of a linear layer's weight and spectral norm: the other framework transposes the matrix."""
    if kind != "linear":
        return entries

    def swapped(name: str, value: Any) -> Any:
        if name not in ("weight_norm", "spectral_norm"):
            return value
        return {weight: 1 - axis if axis in (0, 1) else axis for weight, axis in value.items()}

    return [
        dataclasses.replace(entry, config={name: swapped(name, value) for name, value in entry.config.items()})
        for entry in entries
    ]
