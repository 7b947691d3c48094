"""One layer that stands for several of the other side, side by side: attention, q, k and v in a single Linear, gates in
a single convolution."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from twinalign.conversion.layers_to_match import Matchable, Part, Signature, without_ones
from twinalign.conversion.storage import Slot, Stored

ATTENTION = "multi-head attention"
_MAXIMUM_WAYS = 100_000
_OF_OTHER_SIZES = 2, 3
_ROLES = ("q", "k", "v", "out")
_MOST_FOUND = 6
"""Ways between which running the models decides."""
_Group = tuple[int, Signature, str]
"""Side, signature and last name; an empty one for all names."""
Rows = Mapping[str, Sequence[int]]
"""Name of a matchable → how many outputs each of its parts has; attention is split by its slots."""


def rows_to_fit(mine: Sequence[Matchable], other: Sequence[Matchable]) -> list[tuple[Rows, Rows]]:
    """Which layers of either side to split, so that fewest are left without a counterpart; nothing where none are.

    Returns:
        The ways to do so, all alike in that: where one side's layers have the shapes of others that it needs as they
        are, shapes do not tell which of them are to be split.
    """
    found: tuple[dict[str, Sequence[int]], dict[str, Sequence[int]]] = ({}, {})
    sides = [list(mine), list(other)]
    for number in (0, 1):
        found[number].update({u.name: () for u in _surplus(sides[number], sides[1 - number]) if u.kind == ATTENTION})
        sides[number] = split(sides[number], found[number])
    ways: list[tuple[Rows, Rows]] = []
    for rows_of in _best_ways(sides):
        more = [
            {u.name: way for u in side if not u.part and (way := rows_of.get((number, *_group(u))))}
            for number, side in enumerate(sides)
        ]
        ways.append(({**found[0], **more[0]}, {**found[1], **more[1]}))
    return ways


def _best_ways(sides: Sequence[Sequence[Matchable]]) -> list[dict[_Group, Sequence[int]]]:
    """Of all ways to split the layers of each signature, or those of them that have one last name, the one that leaves
    the fewest without a counterpart; of those the one that splits the fewest that have one of their own name, then the
    one that splits those of one last name most alike, and then the one that makes the fewest parts. By last names there
    may be several.
    """
    ways: list[dict[_Group, Sequence[int]]] = [{}]
    inputs = {shared: None for side in sides for u in side if (shared := _outputs_of(u.signature)[1])}
    for wanted in inputs:  # what has other inputs can be no part of it
        some = [[u for u in side if _outputs_of(u.signature)[1] == wanted] for side in sides]
        counts = Counter((number, *_group(u)) for number, side in enumerate(some) for u in side if not u.part)
        groups: dict[_Group, list[_Group]] = {}
        for group in counts:
            groups.setdefault((*group[:2], ""), []).append(group)
        found = [_cheapest(some, counts, every) for every in (groups, {group: [group] for group in counts})]
        best = min(found, key=lambda one: one[0])[1]
        ways = [{**one, **more} for one, more in itertools.product(ways, best)][:_MOST_FOUND]
    return ways


def _cheapest(
    sides: Sequence[Sequence[Matchable]], counts: Mapping[_Group, int], groups: Mapping[_Group, Sequence[_Group]]
) -> tuple[tuple[int, int, int, int], list[dict[_Group, Sequence[int]]]]:
    """The least cost, as `_best_ways` has it, and the ways that have it.

    `counts`: of what belongs together. `groups`: what of it is split in one way, or not at all.
    """
    every = [Counter(u.signature for u in reversed(side)) for side in sides]
    ways_of = _useful_ways(every)
    choices = [(inside, [(), *ways_of[group[:2]]]) for group, inside in groups.items() if ways_of.get(group[:2])]
    named = Counter(
        (0, *_group(u)) for u in sides[0] if (u.name, u.signature) in {(v.name, v.signature) for v in sides[1]}
    )
    best = sum(((every[0] - every[1]) + (every[1] - every[0])).values()), 0, _forms(counts, {}), 0
    found: list[dict[_Group, Sequence[int]]] = [{}]
    if math.prod(len(rows) for _, rows in choices) > _MAXIMUM_WAYS:
        return best, found
    for ways in itertools.product(*(rows for _, rows in choices)):
        left = [Counter(of_side) for of_side in every]
        chosen: dict[_Group, Sequence[int]] = {
            group: way for (inside, _), way in zip(choices, ways, strict=True) for group in inside if way
        }
        for (number, signature, name), way in chosen.items():
            times = counts[number, signature, name]
            left[number][signature] -= times
            for count in way:
                left[number][_part_signature(signature, count)] += times
        alone = sum(abs(left[0][signature] - left[1][signature]) for signature in {*left[0], *left[1]})
        parts = sum(counts[group] * len(way) for group, way in chosen.items())
        cost = alone, sum(named[group] for group in chosen), _forms(counts, chosen), parts
        if cost < best:
            best, found = cost, []
        if cost == best and len(found) < _MOST_FOUND and chosen:
            found.append(chosen)
    return best, found or [{}]


def _forms(counts: Iterable[_Group], ways: Mapping[_Group, Sequence[int]]) -> int:
    """In how many shares layers of each last name are split, such as two halves at every width, or not at all."""
    shares = {group: tuple(rows / sum(way) for rows in way) for group, way in ways.items()}
    return len({(group[0], group[2], shares.get(group, ())) for group in counts})


def _useful_ways(every: Sequence[Counter[Signature]]) -> dict[tuple[int, Signature], list[tuple[int, ...]]]:
    """Side and signature of layers → the ways to split them, for those alone that are more than the other side's, or
    that are parts of such."""
    found: dict[tuple[int, Signature], list[tuple[int, ...]]] = {}
    waiting = [(number, signature) for number, side in enumerate(every) for signature in side - every[1 - number]]
    while waiting:
        number, signature = waiting.pop()
        if (number, signature) not in found:
            found[number, signature] = ways = _ways_to_split(signature, every[1 - number])
            waiting += [(number, _part_signature(signature, count)) for way in ways for count in way]
    return found


def _group(u: Matchable) -> tuple[Signature, str]:
    """What layers are split together: those of one signature and one last name."""
    return u.signature, u.name.rpartition(".")[2]


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


def _outputs_of(signature: Signature) -> tuple[int, tuple[object, ...]]:
    """Outputs of a Linear or a convolution, and what others have to share with it to stand beside it; 0 for anything
    else."""
    kind, shapes = signature[0], dict(signature[1])
    weight = shapes.get("weight", ())
    if kind == "convolution" and len(weight) > 2:
        return weight[0], (kind, *weight[1:])
    if kind != "linear" or not 1 <= len(weight) <= 2:
        return 0, ()
    if len(weight) == 2:
        return weight[0], (kind, weight[1])
    # Signatures have no axes of one.
    return (1, (kind, weight[0])) if shapes.get("bias", ()) == () else (weight[0], (kind, 1))


def _part_signature(signature: Signature, count: int) -> Signature:
    return signature[0], tuple((name, without_ones((count, *shape[1:]))) for name, shape in signature[1])


def _ways_to_split(signature: Signature, others: Mapping[Signature, int]) -> list[tuple[int, ...]]:
    """Into equal parts, or queries and two smaller parts of keys and values, each of a size that the other side has; or
    into a few of other sizes, in the order in which the other side has the last ones: earlier ones may be others.

    `others`: signatures of the other side, the last first.
    """
    outputs, beside = _outputs_of(signature)
    known = (_outputs_of(other) for other in reversed(list(others)))
    sizes = dict.fromkeys(rows for rows, shared in known if shared == beside)
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
    """One layer of the slots (tensor, number of the slot, what a Linear calls it)."""
    slots = {called: (u.path, part.slots[number].name) for part, number, called in stored}
    own = tuple(
        dataclasses.replace(part, slots=(dataclasses.replace(part.slots[number], name=called),))
        for part, number, called in stored
    )
    kind = "linear" if u.kind == ATTENTION else u.signature[0]
    signature = kind, tuple(sorted((p.slots[0].name, without_ones(p.slots[0].shape)) for p in own))
    return Matchable(name, path, kind, signature, own, part=Part(slots, given))
