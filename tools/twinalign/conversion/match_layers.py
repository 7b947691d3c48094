"""Match the layers of two models: by names, by unique shapes, and finally by running both models."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twinalign.conversion import storage
from twinalign.conversion.branches import alone_in_branches
from twinalign.conversion.extra_layers import extra_layers
from twinalign.conversion.layers_to_match import (
    Matchable,
    differences,
    is_constant,
    matchables_of,
    with_matrices_as_tensors,
)
from twinalign.conversion.linear_parts import Rows, rows_to_fit, split
from twinalign.conversion.match_by_running import (
    AmbiguousError,
    Found,
    first_colours,
    match_by_running,
    pair_by_position,
)
from twinalign.conversion.remote_model import BothModels
from twinalign.conversion.rename_rules import fits_any
from twinalign.conversion.separate_biases import separate_biases, with_biases
from twinalign.conversion.side_layout import Side, by_key
from twinalign.conversion.unmatched import rename_rules
from twinalign.errors import InputError, SideCrashError, TwinalignError

NOTHING = "(no partner)"
"""Name on the paddle side of what has no partner there."""


_Way = tuple[list[Matchable], list[Matchable], tuple[Rows, Rows]]
"""What is to be matched of both sides, with layers of either side that are split for it."""


@dataclasses.dataclass
class Matching:
    """The paddle name of everything in the reference, and how it was found."""

    paths: dict[str, str]
    """Reference layer path → paddle layer path, for layers of known kinds."""
    keys: dict[str, str]
    """Reference key → paddle key, for tensors of the model's own classes."""
    matched_by: str
    """`order` (every kind and set of shapes occurs once, or the sequences agree) or `trial`."""
    doubt: str = ""
    """Why the partners are not all proven; empty: they are."""
    pairs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Reference layer or tensor → paddle's."""
    guessed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Pairs for which neither names nor values speak, only their position."""
    alone: tuple[Sequence[str], Sequence[str]] = ((), ())
    """Layers and tensors of either side without a partner."""
    slots: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    """Layer and slot of the reference → the slot's common name, where a layer stands for several of the other side."""
    rows: tuple[Rows, Rows] = ({}, {})
    """Layers of either side that were split for that."""
    extra: Sequence[str] = ()
    """Of the port's layers without a partner, those that make it another network; see `extra_layers`."""


def match_layers(
    reference: Side,
    paddle: Side,
    trial: Callable[[], BothModels],
    allowed: Sequence[str] = (),
    remedy: str = "",
    partial: bool = False,
) -> Matching:
    """Match two models whose names differ.

    If every kind and set of shapes occurs once on each side, that decides. If not, both models, which `trial` opens,
    are run; names that agree are where the search starts. Matchables whose keys are all `allowed` to be unmatched are
    left out; `remedy` says what a user can do about others that have no counterpart. `partial`: what cannot be proven
    is matched by name and position, and the rest left without a partner.

    Raises InputError if one side has layers that the other lacks or nothing can be proven, and DivergedError if the
    models compute different things; with `partial` only if nothing at all fits.
    """
    mine, other = _wanted(reference, paddle, allowed)
    anchors, by_name = _anchors(reference, paddle, mine, other)
    mine, other = ([u for u in side if u.name not in names] for side, names in zip((mine, other), by_name, strict=True))
    mine, other = with_matrices_as_tensors(mine, other)
    biases = separate_biases(mine, other, _given_by_rules(reference, paddle))
    mine, other = (with_biases(side, of_side) for side, of_side in zip((mine, other), biases, strict=True))
    missing = differences(mine, other)
    ways: list[_Way] = [(mine, other, ({}, {}))]
    if missing:
        parts = [(split(mine, rows[0]), split(other, rows[1]), rows) for rows in rows_to_fit(mine, other)]
        if parts and len(still := differences(*parts[0][:2])) < len(missing):
            ways, missing = parts, still
    mine, other, rows = ways[0]
    if missing and not partial:
        raise InputError(_different(missing, remedy))
    if not missing and max(Counter(matchable.signature for matchable in mine).values(), default=0) == 1:
        partners = {matchable.signature: matchable.name for matchable in other}
        return _matching(Found({u.name: partners[u.signature] for u in mine}), mine, other, "order", {}, rows)
    try:
        models = trial()
        models.biases = biases
        found, (mine, other, rows) = _found_by_running(models, ways, anchors)
        extra = extra_layers(models, mine, other) if found.doubt is not None and partial else []
    except SideCrashError as error:
        if not partial:
            raise InputError(f"{_unproven(mine, other)}. Running them was tried: {error}") from None
        doubt = InputError(f"running the models to find which layer is which failed: {error}")
        found, extra = Found(pair_by_position(mine, other, first_colours(mine, other, anchors)), doubt=doubt), []
    if found.doubt is not None and not partial:
        raise InputError(str(found.doubt)) if isinstance(found.doubt, AmbiguousError) else found.doubt
    if not found.pairs:
        raise InputError(_different(missing, remedy))
    matching = _matching(found, mine, other, "trial", anchors, rows)
    return dataclasses.replace(matching, extra=[matchable.name for matchable in extra])


def _found_by_running(models: BothModels, ways: Sequence[_Way], anchors: Mapping[str, str]) -> tuple[Found, _Way]:
    """The first way in which a matching is proven, else that in which most layers agree."""
    every = []
    for mine, other, rows in ways:
        models.rows, models.turned = rows, False
        found = match_by_running(models, mine, other, anchors)
        if found.doubt is not None and any(u.kind == storage.RAW and u.is_matrix for u in (*mine, *other)):
            models.turned = True
            turned = match_by_running(models, mine, other, anchors)
            found = found if turned.doubt is not None else turned
            models.turned = turned is found
        every.append((found, (mine, other, rows)))
        if found.doubt is None:
            break
    best = min(every, key=lambda one: (one[0].doubt is not None, -len(one[0].supported)))
    models.rows = best[1][2]
    return best


def _given_by_rules(reference: Side, paddle: Side) -> dict[str, str]:
    """Key of the reference → key of the port, where a rename rule says so for this one tensor."""
    known = {by_key(part.entry.key): part.entry.key for part in paddle.stored}
    names = {part.entry.key: reference.slot_names[part.entry.key] for part in reference.stored}
    return {key: known[name] for key, (name, *more) in names.items() if not more and name in known}


def _different(missing: Sequence[str], remedy: str) -> str:
    kinds = ("`", "only the reference", "only the paddle")
    of_either = [[line for line in missing if line.startswith(kind)][:3] for kind in kinds]
    shown = [line for lines in of_either for line in lines]
    return (
        f"the two models are different networks: {'; '.join(shown)}"
        f"{f' and {len(missing) - len(shown)} more such' if len(missing) > len(shown) else ''}"
        f"{f'. {remedy}' if remedy else ''}"
    )


def _wanted(reference: Side, paddle: Side, allowed: Sequence[str]) -> list[list[Matchable]]:
    """What is to be matched of both sides: neither what is allowed to be alone, nor constants of one side."""
    sides = [
        [
            u
            for u in matchables_of(side.framework, side.layers)
            if not all(fits_any(p.entry.key, allowed) for p in u.stored)
        ]
        for side in (reference, paddle)
    ]
    counts = [Counter(u.signature for u in found) for found in sides]
    return [
        [
            u
            for u in found
            if counts[0][u.signature] == counts[1][u.signature]
            or not all(is_constant(side.framework, side.layer_of[part.entry.key], part.entry) for part in u.stored)
        ]
        for side, found in zip((reference, paddle), sides, strict=True)
    ]


def _anchors(
    reference: Side, paddle: Side, mine: Sequence[Matchable], other: Sequence[Matchable]
) -> tuple[dict[str, str], tuple[set[str], set[str]]]:
    """Pairs whose names, after the rename rules, agree, and that are of one kind with a tensor of one shape; and what
    names alone can pair, since one side packs in a layer (q, k and v) what the other has in several.
    """
    known = {name: u for u in other for part in u.stored for name in paddle.slot_names[part.entry.key]}
    known |= {f"key {part.entry.key}": u for u in other for part in u.stored}
    anchors: dict[str, str] = {}
    packed: tuple[set[str], set[str]] = (set(), set())
    for u in mine:
        names = [name for part in u.stored for name in reference.slot_names[part.entry.key]]
        partners = {known[name].name: known[name] for name in names if name in known}
        if len(partners) > 1:
            packed[0].add(u.name)
            packed[1].update(partners)
        for name, partner in partners.items():
            fits = partner.signature[0] == u.signature[0] and set(partner.signature[1]) & set(u.signature[1])
            if fits and len(partners) == 1 and name not in anchors.values():
                anchors[u.name] = name
    return anchors, packed


def _matching(
    found: Found,
    mine: Sequence[Matchable],
    other: Sequence[Matchable],
    matched_by: str,
    anchors: Mapping[str, str],
    rows: tuple[Rows, Rows],
) -> Matching:
    partners = {u.name: u for u in other}
    paths: dict[str, str] = {}
    keys: dict[str, str] = {}
    slots: dict[tuple[str, str], str] = {}
    for u in mine:
        partner = partners.get(found.pairs.get(u.name, ""))
        if u.part or (partner and partner.part):
            names = partner.slot_names if partner else {}
            for slot, (layer, own) in u.slot_names.items():
                slots[layer, own] = ".".join(filter(None, names.get(slot, (NOTHING, own))))
        elif u.name in found.pairs and partner is not None and not (u.by_key or partner.by_key):
            paths[u.name] = partner.name
        elif u.name not in found.pairs and not u.by_key:
            paths[u.name] = f"{NOTHING} {u.name}"
        else:
            theirs = {} if partner is None else {_slot(part, partner): part.entry.key for part in partner.stored}
            keys |= {part.entry.key: theirs.get(_slot(part, u), f"{NOTHING} {part.entry.key}") for part in u.stored}
    counts = Counter(u.signature for u in mine)
    by_branch = alone_in_branches(mine, other)
    guessed = {
        u.name: found.pairs[u.name]
        for u in mine
        if found.doubt is not None
        and u.name in found.pairs
        and u.name not in found.supported
        and found.pairs[u.name] != anchors.get(u.name)
        and found.pairs[u.name] != by_branch.get(u.name)
        and (counts[u.signature] > 1 or partners[found.pairs[u.name]].signature != u.signature)
    }
    alone = (
        [u.name for u in mine if u.name not in found.pairs],
        [u.name for u in other if u.name not in set(found.pairs.values())],
    )
    parts = {u.name for u in (*mine, *other) if u.part}
    pairs = {mine: other for mine, other in found.pairs.items() if not {mine, other} & parts}
    return Matching(paths, keys, matched_by, _reason(found.doubt), pairs, guessed, alone, slots, rows)


def _reason(doubt: TwinalignError | None) -> str:
    return "" if doubt is None else str(doubt)


def _slot(part: storage.Stored, u: Matchable) -> str:
    """What a tensor of a pair is called on both sides."""
    return "" if u.kind == storage.RAW else part.slots[0].name


def _unproven(mine: Sequence[Matchable], other: Sequence[Matchable]) -> str:
    groups: dict[object, tuple[list[str], list[str]]] = {}
    for number, side in enumerate((mine, other)):
        for u in side:
            groups.setdefault(u.signature, ([], []))[number].append(u.name)
    shown = [f"{', '.join(left)} ↔ {', '.join(right)}" for left, right in groups.values() if len(left) > 1]
    return (
        "the names differ and shapes alone do not show which layer is which; give rename rules, or an input to run "
        f"both models on (--input): {'; '.join(shown[:10])}"
    )


def unmatched_facts(
    alone: tuple[Sequence[str], Sequence[str]],
    matching: Matching | None,
    shapes: tuple[Mapping[str, Sequence[int]], Mapping[str, Sequence[int]]],
) -> dict[str, Any]:
    """For the ledger: what has no partner or an unproven one, the reason, and the rename rules; empty if all is well.

    `alone` are the keys of the reference and of the port without a partner, `shapes` those of all their keys.
    """
    guessed = dict(matching.guessed) if matching else {}
    if not any(alone) and not guessed:
        return {}
    pairs = dict(matching.pairs) if matching else {}
    return {
        "reason": matching.doubt if matching else "",
        "reference": list(alone[0]),
        "paddle": list(alone[1]),
        "shapes": [
            {key: list(known[key]) for key in keys if key in known} for keys, known in zip(alone, shapes, strict=True)
        ],
        "guessed": guessed,
        "extra": list(matching.extra) if matching else [],
        "rename": rename_rules({mine: other for mine, other in pairs.items() if mine not in guessed}),
    }
