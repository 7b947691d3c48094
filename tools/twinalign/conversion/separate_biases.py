"""A layer without a bias and a parameter beside it, which together are one layer of the other side, bias included."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from twinalign.conversion.layers_to_match import Matchable, Part, Signature

Biases = Mapping[str, str]
"""Name of a layer → key of the parameter that is added to what it returns."""
_KINDS = ("linear", "convolution")


def separate_biases(
    mine: Sequence[Matchable], other: Sequence[Matchable], given: Mapping[str, str]
) -> tuple[Biases, Biases]:
    """For either side, which parameter is the bias of which layer, where the other side has layers with that bias.

    Only where every surplus layer with a bias finds a layer and a parameter: the one that the user's rules name
    (`given`, key of the reference → key of the port), or else the only one of its size in the nearest module above.
    """
    back = {theirs: ours for ours, theirs in given.items()}
    return _of_side(mine, other, back), _of_side(other, mine, given)


def with_biases(matchables: Sequence[Matchable], biases: Biases) -> list[Matchable]:
    """The matchables, the layers that `biases` names with their bias, and its parameter no more by itself."""
    by_name = {matchable.name: matchable for matchable in matchables}
    keys = {*biases.values()}
    return [
        _with_bias(matchable, by_name[biases[matchable.name]]) if matchable.name in biases else matchable
        for matchable in matchables
        if matchable.name not in keys
    ]


def _of_side(mine: Sequence[Matchable], other: Sequence[Matchable], given: Mapping[str, str]) -> dict[str, str]:
    """`given`: the other side's key of a bias → this side's parameter."""
    here, there = (Counter(matchable.signature for matchable in side) for side in (mine, other))
    loose = [m for m in mine if m.by_key and m.is_trained and here[m.signature] > there[m.signature]]
    found: dict[str, str] = {}
    for signature in there - here:
        shapes = dict(signature[1])
        if signature[0] not in _KINDS or not {"weight", "bias"} <= {*shapes}:
            continue
        plain: Signature = (signature[0], tuple(pair for pair in signature[1] if pair[0] != "bias"))
        layers = [m for m in mine if m.signature == plain and not m.part]
        wanted = there[signature] - here[signature]
        named = {given.get(_key(m, "bias"), "") for m in other if m.signature == signature}
        vectors = [m for m in loose if m.name not in found.values() and _size(m) == math.prod(shapes["bias"])]
        pairs = {layer.name: bias for layer in layers if (bias := _bias_of(layer, vectors, named))}
        if len(pairs) == len({*pairs.values()}) == wanted <= here[plain] - there[plain]:
            found |= pairs
    return found


def _bias_of(layer: Matchable, vectors: Sequence[Matchable], named: set[str]) -> str:
    """Key of the parameter that may be the layer's bias; empty if none or several may."""
    module = layer.path.split(".")
    chosen = [vector for vector in vectors if vector.name in named] or vectors
    above = [
        vector for vector in chosen if vector.path == "" or module[: len(steps := vector.path.split("."))] == steps
    ]
    depth = max((len(vector.path) for vector in above), default=0)
    nearest = [vector.name for vector in above if len(vector.path) == depth]
    return nearest[0] if len(nearest) == 1 else ""


def _with_bias(layer: Matchable, bias: Matchable) -> Matchable:
    (part,) = bias.stored
    slot = dataclasses.replace(part.slots[0], name="bias")
    stored = (*layer.stored, dataclasses.replace(part, slots=(slot,)))
    shape = (_size(bias),) if _size(bias) > 1 else ()
    signature: Signature = (layer.signature[0], tuple(sorted((*layer.signature[1], ("bias", shape)))))
    whole = Part({**layer.slot_names, "bias": (bias.path, part.slots[0].name)}, None)
    return dataclasses.replace(layer, signature=signature, stored=stored, part=whole)


def _key(matchable: Matchable, slot: str) -> str:
    return next((part.entry.key for part in matchable.stored if part.slots[0].name == slot), "")


def _size(matchable: Matchable) -> int:
    """Elements of a vector; 0 for a tensor of more axes."""
    shape = [size for size in matchable.stored[0].slots[0].shape if size != 1]
    return math.prod(shape) if len(shape) <= 1 else 0
