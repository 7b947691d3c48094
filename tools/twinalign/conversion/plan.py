"""Find the source of every target tensor from two layouts alone; no array is touched here."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from twinalign.backends.state_layout import StateEntry
from twinalign.conversion import attention, storage
from twinalign.conversion.layers_to_match import is_constant
from twinalign.conversion.ledger import LedgerEntry
from twinalign.conversion.rename_rules import fits_any
from twinalign.conversion.side_layout import Side, by_key
from twinalign.conversion.storage import Slot, Stored
from twinalign.conversion.unmatched import UnmatchedError

OTHER = {"torch": "paddle", "paddle": "torch"}


@dataclasses.dataclass(frozen=True)
class Piece:
    """Rows `start:stop` of a source tensor in canonical form, or all of it, reshaped to `shape`."""

    key: str
    transposed: bool
    rows: tuple[int, int] | None
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Move:
    """How one target tensor is made: the pieces are joined along axis 0, then transposed; without pieces, filled."""

    target: StateEntry
    pieces: tuple[Piece, ...]
    transposed: bool
    fill: float | None = None
    dtype: str | None = None
    """dtype to cast to, None: as the source has it."""


@dataclasses.dataclass
class Plan:
    """Every move, the ledger's entries, and what is assumed but not proven."""

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
    alone: tuple[Sequence[str], Sequence[str]] = ((), ())
    """Keys of the source and of the target without a partner: dropped, and left to the target's model."""
    unmatched: tuple[Sequence[str], Sequence[str]] = ((), ())
    """Those of them for which nothing says that they need none."""


def make_plan(
    source: Side,
    target: Side,
    *,
    matched_by: str = "name",
    cast: bool = False,
    transpose: Mapping[str, bool] | None = None,
    allow_missing: Sequence[str] = (),
    allow_unexpected: Sequence[str] = (),
    partial: bool = False,
) -> Plan:
    """Find a source for every target tensor and a reason for every source tensor that is dropped.

    Raises UnmatchedError if keys are missing, unexpected or of another shape; `partial` leaves those without a partner.
    `transpose` says by target key whether a matrix of unproven layout is transposed. `cast` gives every tensor the
    target's dtype.
    """
    assumed = _reconcile_attention(source, target)
    planner = _Planner(source, target, matched_by, cast, dict(transpose or {}), partial)
    return dataclasses.replace(planner.plan(allow_missing, allow_unexpected), assumed=assumed)


def _reconcile_attention(*sides: Side) -> list[str]:
    """Match attention layers written by hand; returns the keys whose packing is an assumption."""
    assumed = []
    for side, other in (sides, sides[::-1]):
        stored = {part.entry.key: part for part in side.stored}
        others = {name for names in other.slot_names.values() for name in names}
        assumed += attention.reconcile(stored, side.slot_names, others)
        side.stored[:] = [stored[part.entry.key] for part in side.stored]
    return assumed


def _is_folded(short: tuple[int, ...], long: tuple[int, ...]) -> bool:
    """Whether `short` is `long` with neighbouring axes multiplied, those of length one left aside."""
    left = [size for size in long if size != 1]
    for size in (size for size in short if size != 1):
        product = 1
        while left and product < size:
            product *= left.pop(0)
        if product != size:
            return False
    return not left


class _Planner:
    def __init__(
        self, source: Side, target: Side, matched_by: str, cast: bool, transpose: dict[str, bool], partial: bool
    ) -> None:
        self.source, self.target = source, target
        self.matched_by, self.cast, self.transpose, self.partial = matched_by, cast, transpose, partial
        self.alone: tuple[list[str], list[str]] = ([], [])
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
                self.offered.setdefault(by_key(part.entry.key), (part, 0))

    def plan(self, allow_missing: Sequence[str], allow_unexpected: Sequence[str]) -> Plan:
        missing = [part.entry.key for part in self.target.stored if not self._plan_tensor(part)]
        missing = [key for key in missing if not self._plan_tie(key)]
        left = [part.entry.key for part in self.source.stored if part.entry.key not in self.used]
        unexpected = [key for key in left if not self._drop(key)]
        unmatched = self._allow(missing, unexpected, allow_missing, allow_unexpected)
        ties = [
            (move.target.tied_to, move.target.key)
            for move in self.moves
            if move.target.tied_to is not None and move.pieces
        ]
        order = {part.entry.key: index for index, part in enumerate(self.target.stored)}
        self.entries.sort(key=lambda entry: order.get(entry.target or "", len(order)))
        moves = sorted(self.moves, key=lambda move: order[move.target.key])
        return Plan(
            moves, self.entries, self.unproven, ties, self.dropped_ties, self.answered, [], self.alone, unmatched
        )

    def _plan_tensor(self, part: Stored) -> bool:
        """Plan one target tensor; False if the source has nothing for it."""
        names = self.target.slot_names[part.entry.key]
        found = [self.offered.get(name) for name in names]
        if found == [None] and self.target.framework == "paddle":
            found = [self.offered.get(by_key(part.entry.key))]
        if any(offer is None for offer in found):
            return self._fill(part)
        pieces, flips = [], []
        before = len(self.problems)
        for slot, offer in zip(part.slots, found, strict=True):
            assert offer is not None
            piece, flipped = self._piece(part, slot, *offer)
            pieces.append(piece)
            flips.append(flipped)
        if self.partial and len(self.problems) > before:
            return False
        self.used.update(offer[0].entry.key for offer in found if offer is not None)
        dtype = self._dtype(part.entry, [offer[0].entry for offer in found if offer is not None])
        self.moves.append(Move(part.entry, tuple(pieces), part.transposed, dtype=dtype))
        self._enter(part, [offer[0] for offer in found if offer is not None], flips, dtype)
        return True

    def _piece(self, part: Stored, slot: Slot, offer: Stored, index: int) -> tuple[Piece, bool]:
        """The piece of `offer` that fills `slot`, and whether it is transposed only because of its shape."""
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
        """Whether the shapes differ only by axes of length one or by neighbouring axes that one side has as one (heads
        and their width), or the layer may flatten its tensors.
        """
        if _is_folded(wanted, given) or _is_folded(given, wanted):
            return True
        return (part.flexible or offer.flexible) and math.prod(wanted) == math.prod(given)

    def _misfit(self, part: Stored, offer: Stored) -> str:
        source, target = offer.entry, part.entry
        note = ""
        if tuple(reversed(source.shape)) == target.shape and len(target.shape) == 2:
            note = " (its transpose would fit, but the matrix layout of both layers is known)"
        return (
            f"{source.key!r} has shape {list(source.shape)} ({self.source.layer_of[source.key].short_class}), "
            f"{target.key!r} wants {list(target.shape)} ({self.target.layer_of[target.key].short_class}){note}"
        )

    def _dtype(self, target: StateEntry, sources: Sequence[StateEntry]) -> str | None:
        """The dtype to cast to: the model's if asked; integers and flags always get the model's exact dtype."""
        given = {entry.dtype for entry in sources}
        if given == {target.dtype}:
            return None
        floating = [name.startswith(("float", "bfloat")) for name in (*given, target.dtype)]
        if any(floating) and not all(floating):
            self.problems.append(
                f"{sources[0].key!r} is {sources[0].dtype}, {target.key!r} wants {target.dtype}: "
                "integers and floating-point numbers are not cast to one another"
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
            return f"{classes}: one stores the matrix as (out, in), the other as (in, out)"
        if not (part.proven and offer.proven):
            return f"{classes}: a matrix of the model's own, assumed to be the same on both sides"
        return f"{classes}: {'the same on both sides' if kind == storage.RAW else kind + ' rule'}"

    def _fill(self, part: Stored) -> bool:
        """Fill a tensor that the source's framework does not have; False if it is required."""
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
        """Make a target key from the sources of the keys that it is tied to; False if none of those is made."""
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
        """Enter a source key that is dropped for a known reason; False if there is no such reason."""
        part = self.source_parts[key]
        twin = next((name for name in self.tied[part.entry.tied_to or key] if name in self.used), None)
        if twin is not None:
            reason = f"the source ties it to {twin!r}, which is converted"
            self.dropped_ties.append((twin, key))
        elif all(slot.fill is not None for slot in part.slots):
            reason = part.slots[0].note
        else:
            return False
        self._enter_drop(part.entry, reason)
        return True

    def _enter_drop(self, entry: StateEntry, reason: str, source: bool = True) -> None:
        places = ((entry.key,), None, (entry.shape,), None) if source else ((), entry.key, (), entry.shape)
        keys, target, shapes, shape = places
        self.entries.append(LedgerEntry(keys, target, ("dropped",), reason, shapes, shape, entry.dtype))

    def _allow(
        self, missing: list[str], unexpected: list[str], allow_missing: Sequence[str], allow_unexpected: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Enter what has no partner; returns the keys of the source and of the target that should have one."""
        unmatched: tuple[list[str], list[str]] = ([], [])
        for number, (side, keys, patterns, other, word) in enumerate(
            (
                (self.source, unexpected, allow_unexpected, self.target, "dropped"),
                (self.target, missing, allow_missing, self.source, "missing"),
            )
        ):
            entries = {part.entry.key: part.entry for part in side.stored}
            for key in keys:
                entry, names = entries[key], side.slot_names[key]
                if fits_any(key, patterns):
                    reason = f"allowed by name to be {word}"
                elif any(name in other.non_persistent for name in names):
                    holder = "target" if number == 0 else "source"
                    reason = f"the {holder} does not keep this buffer in its state dict and makes it itself"
                elif is_constant(side.framework, side.layer_of[key], entry):
                    reason = "a constant of one side alone"
                else:
                    reason = "no partner was found"
                    unmatched[number].append(key)
                self.alone[number].append(key)
                self._enter_drop(entry, reason, source=number == 0)
        if not self.partial and (any(unmatched) or self.problems):
            raise UnmatchedError(*unmatched, self.problems)
        return unmatched
