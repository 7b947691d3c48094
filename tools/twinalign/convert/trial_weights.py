"""Weights for a trial: made from a unit's colour, so that equally coloured units of two frameworks hold the same."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.convert import layout as layouts
from twinalign.convert import storage
from twinalign.convert.storage import Slot, Stored
from twinalign.convert.units import units_of


def make(
    framework: str, layout: Sequence[Mapping[str, Any]], current: Mapping[str, np.ndarray], colours: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """Every array of the state: float64 from the colours, by unit name; integers and flags as the model has them."""
    entries = [layouts.StateEntry.of(entry) for entry in layout]
    layers = layouts.group_layers(entries, lambda bases: storage.absorbs(framework, bases))
    made = dict(current)
    for unit in units_of(framework, layers):
        for part in unit.stored:
            if current[part.entry.key].dtype.kind == "f":
                made[part.entry.key] = _stored(part, unit.kind, colours.get(unit.name, unit.name))
    for entry in entries:
        if entry.persistent and entry.tied_to is not None:
            made[entry.key] = made[entry.tied_to]
    return made


def _stored(part: Stored, kind: str, colour: str) -> np.ndarray:
    pieces = [_canonical(slot, kind, colour) for slot in part.slots]
    joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    joined = joined.T if part.transposed else joined
    return np.ascontiguousarray(joined).reshape(part.entry.shape)


def _canonical(slot: Slot, kind: str, colour: str) -> np.ndarray:
    """Numbers that keep activations alive through deep networks: He-like weights, variances near one.

    A slot of the same numbers but another shape (a bias of (1, n)) gets the same numbers.
    """
    name = "" if kind == storage.RAW else slot.name
    generator = np.random.default_rng(zlib.crc32(f"{colour}/{name}".encode()))
    numbers = generator.standard_normal(int(math.prod(slot.shape)))
    leaf = slot.name.rsplit(".", 1)[-1]
    if leaf == "running_var" or "magnitude" in slot.name:
        numbers = 1.0 + 0.2 * np.abs(numbers)
    elif "norm" in kind and leaf == "weight":
        numbers = 1.0 + 0.2 * numbers
    elif len(slot.shape) < 2 or leaf == "bias":
        numbers = 0.1 * numbers
    elif kind == "embedding" or kind == storage.RAW:
        numbers = 0.5 * numbers
    else:
        fan_in = math.prod(slot.shape[1:])
        numbers = numbers * math.sqrt(2.0 / max(fan_in, 1))
    return numbers.reshape(slot.shape)
