"""Work out, from two layouts alone, where every tensor of the target comes from; no array is touched here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.convert import attention, layout, reparametrised, storage
from twinalign.convert.layout import Layer, StateEntry
from twinalign.convert.ledger import LedgerEntry
from twinalign.convert.names import Renaming, fits_any, reference_path
from twinalign.convert.storage import Slot, Stored
from twinalign.errors import InputError

OTHER = {"torch": "paddle", "paddle": "torch"}


@dataclasses.dataclass(frozen=True)
class Piece:
    """Rows `start:stop` of a source tensor in canonical form, or all of it, in the shape `shape`."""

    key: str
    transposed: bool
    rows: tuple[int, int] | None
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Move:
    """How one target tensor is made: the pieces joined along axis 0, then transposed; without pieces, filled."""

    target: StateEntry
    pieces: tuple[Piece, ...]
    transposed: bool
    fill: float | None = None
    dtype: str | None = None
    """dtype to cast to, None: as the source has it."""


@dataclasses.dataclass
class Plan:
    """Every move, the ledger's entries, and what is assumed rather than proven."""

    moves: list[Move]
    entries: list[LedgerEntry]
    unproven: list[str]
    """Target keys of square matrices whose layout is a convention; a trial can settle them."""
    ties: list[tuple[str, str]]
    """Pairs of target keys that hold one tensor and are made from different source keys."""
    dropped_ties: list[tuple[str, str]]
    """Pairs of source keys that the source's model ties: the one that is converted, and the one that is dropped."""
    answered: list[str]
    """Target keys of matrices whose layout was open and answered by `transpose`."""
    assumed: list[str]
    """Keys that pack q, k and v, assumed in this order; a trial can prove it."""


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
    framework: str, entries: Sequence[StateEntry | Mapping[str, Any]], renaming: Renaming, paths: Mapping[str, str]
) -> Side:
    """Group a layout into layers and name every slot in paddle's terms.

    `paths` gives the paddle path of a torch layer where an alignment has found it; names decide the rest.
    """
    known = [StateEntry.of(entry) for entry in entries]
    layers = layout.group_layers(known, lambda bases: storage.absorbs(framework, bases))
    side = Side(framework, layers, [], {}, {}, {entry.key: entry for entry in known if not entry.persistent})
    for layer in layers:
        for part in reparametrised.storage_of(framework, layer):
            side.stored.append(part)
            side.layer_of[part.entry.key] = layer
            side.slot_names[part.entry.key] = tuple(
                _common_name(framework, layer, part, slot, renaming, paths) for slot in part.slots
            )
    order = {entry.key: index for index, entry in enumerate(known)}
    side.stored.sort(key=lambda part: order[part.entry.key])
    return side


def _common_name(
    framework: str, layer: Layer, part: Stored, slot: Slot, renaming: Renaming, paths: Mapping[str, str]
) -> str:
    if framework == "paddle":
        return f"{layer.path}.{slot.name}" if layer.path else slot.name
    if layer.path in paths:
        path = paths[layer.path]
        return f"{path}.{slot.name}" if path else slot.name
    exact = renaming.rules.get(part.entry.key)
    if exact is not None and len(part.slots) == 1:
        renaming.used.add(part.entry.key)
        return _by_key(exact)
    path = reference_path(layer)
    return renaming.apply(f"{path}.{slot.name}" if path else slot.name)


def _by_key(paddle_key: str) -> str:
    """The name of a tensor that a rename rule pairs by its very key, whatever its slot is called."""
    return f"key {paddle_key}"


def make_plan(
    source: Side,
    target: Side,
    *,
    matched_by: str = "name",
    cast: bool = False,
    transpose: Mapping[str, bool] | None = None,
    allow_missing: Sequence[str] = (),
    allow_unexpected: Sequence[str] = (),
) -> Plan:
    """Find a source for every target tensor and a reason for every source tensor that goes nowhere.

    Raises InputError listing every key that is missing, unexpected or of another shape. `transpose` settles by target
    key whether a matrix of unproven layout is transposed. `cast` gives every tensor the target's dtype.
    """
    assumed = _reconcile_attention(source, target)
    plan = _Planner(source, target, matched_by, cast, dict(transpose or {})).plan(allow_missing, allow_unexpected)
    return dataclasses.replace(plan, assumed=assumed)


def _reconcile_attention(*sides: Side) -> list[str]:
    """Let attention layers written by hand meet; returns the keys whose packing is an assumption."""
    assumed = []
    for side, other in (sides, sides[::-1]):
        stored = {part.entry.key: part for part in side.stored}
        others = {name for names in other.slot_names.values() for name in names}
        assumed += attention.reconcile(stored, side.slot_names, others)
        side.stored[:] = [stored[part.entry.key] for part in side.stored]
    return assumed


class _Planner:
    """The state of one planning: what is found, what is wrong."""

    def __init__(self, source: Side, target: Side, matched_by: str, cast: bool, transpose: dict[str, bool]) -> None:
        self.source, self.target = source, target
        self.matched_by, self.cast, self.transpose = matched_by, cast, transpose
        self.moves: list[Move] = []
        self.entries: list[LedgerEntry] = []
        self.unproven: list[str] = []
        self.answered: list[str] = []
        self.problems: list[str] = []
        self.used: set[str] = set()
        self.dropped_ties: list[tuple[str, str]] = []
        self.source_parts = {part.entry.key: part for part in source.stored}
        self.tied: dict[str, list[str]] = {}
        for part in source.stored:
            self.tied.setdefault(part.entry.tied_to or part.entry.key, []).append(part.entry.key)
        self.offered: dict[str, tuple[Stored, int]] = {}
        for part in source.stored:
            for index, name in enumerate(source.slot_names[part.entry.key]):
                self.offered.setdefault(name, (part, index))
            if source.framework == "paddle" and len(part.slots) == 1:
                self.offered.setdefault(_by_key(part.entry.key), (part, 0))

    def plan(self, allow_missing: Sequence[str], allow_unexpected: Sequence[str]) -> Plan:
        """Plan every target tensor, then account for what is left of the source."""
        missing = [part.entry.key for part in self.target.stored if not self._plan_tensor(part)]
        missing = [key for key in missing if not self._plan_tie(key)]
        left = [part.entry.key for part in self.source.stored if part.entry.key not in self.used]
        unexpected = [key for key in left if not self._drop(key)]
        self._allow(missing, unexpected, allow_missing, allow_unexpected)
        ties = [
            (move.target.tied_to, move.target.key)
            for move in self.moves
            if move.target.tied_to is not None and move.pieces
        ]
        return Plan(self._in_order(), self.entries, self.unproven, ties, self.dropped_ties, self.answered, [])

    def _in_order(self) -> list[Move]:
        order = {part.entry.key: index for index, part in enumerate(self.target.stored)}
        self.entries.sort(key=lambda entry: order.get(entry.target or "", len(order)))
        return sorted(self.moves, key=lambda move: order[move.target.key])

    def _plan_tensor(self, part: Stored) -> bool:
        """Plan one target tensor; False where the source offers nothing for it."""
        names = self.target.slot_names[part.entry.key]
        found = [self.offered.get(name) for name in names]
        if found == [None] and self.target.framework == "paddle":
            found = [self.offered.get(_by_key(part.entry.key))]
        if any(offer is None for offer in found):
            return self._fill(part)
        pieces, flips = [], []
        for slot, offer in zip(part.slots, found, strict=True):
            assert offer is not None
            piece, flipped = self._piece(part, slot, *offer)
            pieces.append(piece)
            flips.append(flipped)
            self.used.add(offer[0].entry.key)
        dtype = self._dtype(part.entry, [offer[0].entry for offer in found if offer is not None])
        self.moves.append(Move(part.entry, tuple(pieces), part.transposed, dtype=dtype))
        self._enter(part, [offer[0] for offer in found if offer is not None], flips, dtype)
        return True

    def _piece(self, part: Stored, slot: Slot, offer: Stored, index: int) -> tuple[Piece, bool]:
        """The piece of `offer` that fills `slot`, and whether the shape alone called for a transposition."""
        given = offer.slots[index]
        rows = None
        if len(offer.slots) > 1:
            start = sum(before.shape[0] for before in offer.slots[:index])
            rows = (start, start + given.shape[0])
        transposed = offer.transposed
        key, shape = part.entry.key, slot.shape
        flipped = False
        unproven = not (part.proven and offer.proven) and len(shape) == 2 and rows is None
        flip = shape == given.shape[::-1] and shape != given.shape
        if key in self.transpose:
            flip = self.transpose[key] != (offer.transposed != part.transposed)
        if unproven and key in self.transpose:
            self.answered.append(key)
        if unproven and flip:
            transposed, flipped = not transposed, True
            given = dataclasses.replace(given, shape=given.shape[::-1])
        elif unproven and key not in self.transpose and shape == given.shape and shape[0] == shape[1]:
            self.unproven.append(key)
        if shape != given.shape and not self._same_numbers(part, offer, shape, given.shape):
            self.problems.append(self._misfit(part, offer))
        return Piece(offer.entry.key, transposed, rows, shape), flipped

    @staticmethod
    def _same_numbers(part: Stored, offer: Stored, wanted: tuple[int, ...], given: tuple[int, ...]) -> bool:
        """Whether the shapes differ by axes of length one only, or the layer may flatten its tensors."""
        if [size for size in wanted if size != 1] == [size for size in given if size != 1]:
            return True
        return (part.flexible or offer.flexible) and math.prod(wanted) == math.prod(given)

    def _misfit(self, part: Stored, offer: Stored) -> str:
        source, target = offer.entry, part.entry
        note = ""
        if tuple(reversed(source.shape)) == target.shape and len(target.shape) == 2:
            note = " (its transpose would fit, but both layers keep their matrix in a known layout)"
        return (
            f"{source.key!r} has shape {list(source.shape)} ({self.source.layer_of[source.key].short_class}), "
            f"{target.key!r} wants {list(target.shape)} ({self.target.layer_of[target.key].short_class}){note}"
        )

    def _dtype(self, target: StateEntry, sources: Sequence[StateEntry]) -> str | None:
        """dtype to cast to: the model's where asked; integers and flags always take the model's exact dtype."""
        given = {entry.dtype for entry in sources}
        if given == {target.dtype}:
            return None
        floating = [name.startswith(("float", "bfloat")) for name in (*given, target.dtype)]
        if any(floating) and not all(floating):
            self.problems.append(
                f"{sources[0].key!r} is {sources[0].dtype}, {target.key!r} wants {target.dtype}: "
                "numbers and floating-point numbers are not cast to one another"
            )
            return None
        return target.dtype if self.cast or not floating[-1] else None

    def _enter(self, part: Stored, offers: list[Stored], flips: list[bool], dtype: str | None) -> None:
        actions = []
        packed = any(len(offer.slots) > 1 for offer in offers) and len(part.slots) != len(offers[0].slots)
        keys = tuple(dict.fromkeys(offer.entry.key for offer in offers))
        if packed and len(keys) == 1:
            actions.append("split")
        if len(keys) > 1:
            actions.append("merged")
        transposed = any(
            (offer.transposed != part.transposed) != flipped for offer, flipped in zip(offers, flips, strict=True)
        )
        if transposed:
            actions.append("transposed")
        elif offers[0].entry.shape != part.entry.shape and not packed and len(keys) == 1:
            actions.append("reshaped")
        if keys != (part.entry.key,):
            actions.append("renamed")
        if dtype is not None:
            actions.append("cast")
        if part.entry.tied_to is not None:
            actions.append("tied")
        self.entries.append(
            LedgerEntry(
                keys,
                part.entry.key,
                tuple(actions) or ("copied",),
                self._reason(part, offers[0], transposed, any(flips)),
                tuple(offer.entry.shape for offer in offers[: len(keys)]),
                part.entry.shape,
                dtype or offers[0].entry.dtype,
                self.matched_by,
            )
        )

    def _reason(self, part: Stored, offer: Stored, transposed: bool, flipped: bool) -> str:
        source, target = self.source.layer_of[offer.entry.key], self.target.layer_of[part.entry.key]
        classes = f"{source.short_class} to {target.short_class}"
        if flipped:
            decided = "as decided" if part.entry.key in self.transpose else "only the transpose fits"
            return f"{classes}: {decided}"
        kind = storage.kind_of(self.target.framework, target)
        if transposed:
            return f"{classes}: one keeps the matrix (out, in), the other (in, out)"
        if not (part.proven and offer.proven):
            return f"{classes}: a matrix of the model's own, by convention the same on both sides"
        return f"{classes}: {'the same on both sides' if kind == storage.RAW else kind + ' rule'}"

    def _fill(self, part: Stored) -> bool:
        """Fill a tensor that the source's framework does not have; False where it has to be there."""
        if any(slot.fill is None for slot in part.slots):
            return False
        slot = part.slots[0]
        self.moves.append(Move(part.entry, (), False, fill=slot.fill))
        self.entries.append(
            LedgerEntry(
                (), part.entry.key, ("filled",), f"{slot.fill:g}: {slot.note}", (), part.entry.shape, part.entry.dtype
            )
        )
        return True

    def _plan_tie(self, key: str) -> bool:
        """Make a target key that is tied to others from what they are made of; False where none of them is made."""
        entry = next(part.entry for part in self.target.stored if part.entry.key == key)
        group = entry.tied_to or key
        made = next((m for m in self.moves if group in (m.target.key, m.target.tied_to) and m.pieces), None)
        if made is None:
            return False
        self.moves.append(dataclasses.replace(made, target=entry))
        reason = f"the target ties it to {made.target.key!r}"
        sources = tuple(dict.fromkeys(piece.key for piece in made.pieces))
        shapes = tuple(piece.shape for piece in made.pieces)
        self.entries.append(
            LedgerEntry(sources, key, ("tied",), reason, shapes, entry.shape, entry.dtype, self.matched_by)
        )
        return True

    def _drop(self, key: str) -> bool:
        """Enter a source key that goes nowhere for a known reason; False where it ought to go somewhere."""
        part = self.source_parts[key]
        reason = None
        twin = next((name for name in self.tied[part.entry.tied_to or key] if name in self.used), None)
        kept_out = [name for name in self.source.slot_names[part.entry.key] if name in self.target.non_persistent]
        if twin is not None:
            reason = f"the source ties it to {twin!r}, which is converted"
            self.dropped_ties.append((twin, key))
        elif all(slot.fill is not None for slot in part.slots):
            reason = part.slots[0].note
        elif kept_out:
            reason = "the target keeps this buffer out of its state dict and makes it itself"
        if reason is None:
            return False
        self._enter_drop(part.entry, reason)
        return True

    def _enter_drop(self, entry: StateEntry, reason: str) -> None:
        self.entries.append(LedgerEntry((entry.key,), None, ("dropped",), reason, (entry.shape,), None, entry.dtype))

    def _allow(
        self, missing: list[str], unexpected: list[str], allow_missing: Sequence[str], allow_unexpected: Sequence[str]
    ) -> None:
        """Enter what was allowed by name, and raise for the rest."""
        entries = {part.entry.key: part.entry for part in (*self.source.stored, *self.target.stored)}
        for key in unexpected:
            if fits_any(key, allow_unexpected):
                self._enter_drop(entries[key], "allowed by name to go nowhere")
        for key in missing:
            if fits_any(key, allow_missing):
                entry = entries[key]
                self.entries.append(
                    LedgerEntry((), key, ("dropped",), "allowed by name to be missing", (), entry.shape, entry.dtype)
                )
        missing = [key for key in missing if not fits_any(key, allow_missing)]
        unexpected = [key for key in unexpected if not fits_any(key, allow_unexpected)]
        problems = []
        if missing:
            problems.append(f"missing (the target needs, the source lacks): {_listed(missing)}")
        if unexpected:
            problems.append(f"unexpected (in the source, nowhere to go): {_listed(unexpected)}")
        problems += self.problems
        if problems:
            raise InputError(
                "the two states do not fit: "
                + "; ".join(problems)
                + ". Give rename rules where names differ, or allow a key by name"
            )


def _listed(keys: Sequence[str], most: int = 40) -> str:
    shown = ", ".join(keys[:most])
    return shown if len(keys) <= most else f"{shown} and {len(keys) - most} more"
