"""One layer that stands for several Linear layers of the other side: attention, or q, k and v in a single Linear."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from twinalign.conversion.layers_to_match import Matchable, Part, Signature, without_ones
from twinalign.conversion.storage import Slot, Stored

ATTENTION = "multi-head attention"
_MAXIMUM_WAYS = 100_000
_OF_OTHER_SIZES = 2, 3
_ROLES = ("q", "k", "v", "out")
Rows = Mapping[str, Sequence[int]]
"""Name of a matchable → how many outputs each of its parts has; attention is split by its slots."""


def rows_to_fit(mine: Sequence[Matchable], other: Sequence[Matchable]) -> tuple[Rows, Rows]:
    """Which layers of either side to split, so that fewer are left without a counterpart; empty where none are."""
    found: tuple[dict[str, Sequence[int]], dict[str, Sequence[int]]] = ({}, {})
    sides = [list(mine), list(other)]
    for number in (0, 1):
        found[number].update({u.name: () for u in _surplus(sides[number], sides[1 - number]) if u.kind == ATTENTION})
        sides[number] = split(sides[number], found[number])
    for number, rows_of in enumerate(_best_rows(sides)):
        found[number].update({u.name: rows_of[u.signature] for u in sides[number] if rows_of.get(u.signature)})
    return found


def _best_rows(sides: Sequence[Sequence[Matchable]]) -> list[dict[Signature, Sequence[int]]]:
    """Of all ways to split the Linear layers of each signature, the one that leaves the fewest without a counterpart;
    of those the one that splits the fewest that have one of their own name, and then the fewest.
    """
    whole = [Counter(u.signature for u in side if not u.part and _matrix_of(u.signature)[0]) for side in sides]
    every = [Counter(u.signature for u in reversed(side)) for side in sides]
    choices = [
        (number, signature, rows)
        for number in (0, 1)
        for signature in whole[number]
        if len(rows := [(), *_ways_to_split(signature, every[1 - number])]) > 1
    ]
    named = Counter(u.signature for u in sides[0] if (u.name, u.signature) in {(v.name, v.signature) for v in sides[1]})
    best = (sum(((every[0] - every[1]) + (every[1] - every[0])).values()), 0, 0)
    found: list[dict[Signature, Sequence[int]]] = [{}, {}]
    if math.prod(len(every_way) for _, _, every_way in choices) > _MAXIMUM_WAYS:
        return found
    for ways in itertools.product(*(every_way for _, _, every_way in choices)):
        counts = [Counter(of_side) for of_side in every]
        for (number, signature, _), way in zip(choices, ways, strict=True):
            if way:
                times = counts[number].pop(signature)
                for count in way:
                    counts[number][_part_signature(signature, count)] += times
        left = sum(((counts[0] - counts[1]) + (counts[1] - counts[0])).values())
        split_ones = [signature for (_, signature, _), way in zip(choices, ways, strict=True) if way]
        cost = left, sum(named[signature] for signature in split_ones), len(split_ones)
        if cost < best:
            best = cost
            found = [{}, {}]
            for (number, signature, _), way in zip(choices, ways, strict=True):
                found[number][signature] = way
    return found


def split(matchables: Sequence[Matchable], rows: Rows) -> list[Matchable]:
    """The matchables, those that `rows` names in parts."""
    return [part for u in matchables for part in (_parts(u, rows[u.name]) if u.name in rows else [u])]


def split_slots(part: Stored, rows: Sequence[int]) -> Stored:
    """A Linear's tensor with one slot for each part: `weight.0`, `weight.1`, …"""
    (slot,) = part.slots
    slots = tuple(Slot(f"{slot.name}.{number}", (count, *slot.shape[1:])) for number, count in enumerate(rows))
    return dataclasses.replace(part, slots=slots)


def _surplus(mine: Sequence[Matchable], other: Sequence[Matchable]) -> list[Matchable]:
    there, here = (Counter(u.signature for u in side) for side in (other, mine))
    return [u for u in mine if here[u.signature] > there[u.signature]]


def _matrix_of(signature: Signature) -> tuple[int, int]:
    """Outputs and inputs of a Linear; zeros for anything else."""
    shapes = dict(signature[1])
    weight = shapes.get("weight", ())
    if signature[0] != "linear" or not 1 <= len(weight) <= 2:
        return 0, 0
    if len(weight) == 2:
        return weight[0], weight[1]
    return (1, weight[0]) if shapes.get("bias", ()) == () else (weight[0], 1)  # signatures have no axes of one


def _part_signature(signature: Signature, count: int) -> Signature:
    return signature[0], tuple((name, without_ones((count, *shape[1:]))) for name, shape in signature[1])


def _ways_to_split(signature: Signature, others: Mapping[Signature, int]) -> list[tuple[int, ...]]:
    """Into equal parts, or queries and two smaller parts of keys and values, each of a size that the other side has; or
    into a few of other sizes, in the order in which the other side has the last ones: earlier ones may be others.

    `others`: signatures of the other side, the last first.
    """
    outputs, inputs = _matrix_of(signature)
    matrices = (_matrix_of(other) for other in reversed(list(others)))
    sizes = dict.fromkeys(rows for rows, columns in matrices if columns == inputs)
    ways = {(size,) * (outputs // size) for size in sizes if 0 < size < outputs and outputs % size == 0}
    ways |= {(outputs - 2 * size, size, size) for size in sizes if 0 < size < outputs - 2 * size}
    several = (some for count in _OF_OTHER_SIZES for some in itertools.combinations(sizes, count))
    ways |= {some for some in several if sum(some) == outputs}
    return sorted(ways)


def _parts(u: Matchable, rows: Sequence[int]) -> list[Matchable]:
    if u.kind == ATTENTION:
        return [_attention_part(u, role) for role in _ROLES if any(_has_role(part, role) for part in u.stored)]
    return [
        _part(
            u, f"{u.name}[{number}]", u.path, None, [(split_slots(p, rows), number, p.slots[0].name) for p in u.stored]
        )
        for number in range(len(rows))
    ]


def _attention_part(u: Matchable, role: str) -> Matchable:
    """A projection of an attention layer; where it is a layer of its own, that is what sees its inputs."""
    stored = []
    path = u.path
    for part in u.stored:
        for number, slot in enumerate(part.slots):
            if slot.name.startswith(f"{role}."):
                stored.append((part, number, slot.name.removeprefix(f"{role}.")))
                path = part.entry.layer
    given = _ROLES.index(role) if path == u.path else None
    return _part(u, f"{u.path}.{role}_proj" if u.path else f"{role}_proj", path, given, stored)


def _has_role(part: Stored, role: str) -> bool:
    return any(slot.name.startswith(f"{role}.") for slot in part.slots)


def _part(
    u: Matchable, name: str, path: str, given: int | None, stored: Sequence[tuple[Stored, int, str]]
) -> Matchable:
    """One Linear layer of the slots (tensor, number of the slot, what a Linear calls it)."""
    slots = {called: (u.path, part.slots[number].name) for part, number, called in stored}
    own = tuple(
        dataclasses.replace(part, slots=(dataclasses.replace(part.slots[number], name=called),))
        for part, number, called in stored
    )
    signature = ("linear", tuple(sorted((p.slots[0].name, without_ones(p.slots[0].shape)) for p in own)))
    return Matchable(name, path, "linear", signature, own, part=Part(slots, given))
