"""Carry out a plan: arrays in, arrays out, one at a time."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plain_pickles.dtypes import numpy_dtype
from twinalign.backends.state_layout import StateEntry
from twinalign.conversion.ledger import Ledger
from twinalign.conversion.plan import OTHER, Move, Plan, make_plan
from twinalign.conversion.rename_rules import Renaming, fits_any
from twinalign.conversion.side_layout import read_side
from twinalign.conversion.unmatched import ListedError
from twinalign.errors import InputError
from twinalign.files.recordings import in_order
from twinalign.sides import FRAMEWORK_OF_SIDE


@dataclasses.dataclass
class Conversion:
    """Result of `convert_state`."""

    arrays: dict[str, np.ndarray]
    """Every key of the target, in the target's order."""
    ledger: Ledger
    unproven: list[str]
    """Target keys of square matrices whose layout is a convention; `twinalign convert --verify` proves them."""
    moves: list[Move]
    """How each of the arrays was made."""
    alone: tuple[Sequence[str], Sequence[str]] = ((), ())
    """Keys of the source and of the target without a partner; the target's are not among the arrays."""


def convert_state(
    arrays: Mapping[str, np.ndarray],
    source_layout: Sequence[StateEntry | Mapping[str, Any]],
    target_layout: Sequence[StateEntry | Mapping[str, Any]],
    *,
    source: str = "ref",
    rename: Mapping[str, str] | None = None,
    cast: bool = False,
    allow_missing: Sequence[str] = (),
    allow_unexpected: Sequence[str] = (),
) -> Conversion:
    """Convert a state dict between the frameworks by the classes of its layers.

    `arrays`: key → array, exactly the keys of `source_layout`. The layouts are what a backend's `describe_state`
    returns for each model. `source`: the side of the arrays, `"ref"` (torch) or `"paddle"`. `rename`:
    `{reference name: paddle name}`, keys or prefixes of whole steps. `cast`: give every array the target model's dtype;
    without it, floating-point arrays keep theirs, bit for bit.

    Raises InputError that lists every missing, unexpected and misshapen key.
    """
    present, _ = check_keys(arrays, source_layout, source)
    renaming = Renaming(rename)
    framework = FRAMEWORK_OF_SIDE[source]
    sides = (
        read_side(framework, present, renaming, {}),
        read_side(OTHER[framework], target_layout, renaming, {}),
    )
    renaming.check_used()
    plan = make_plan(*sides, cast=cast, allow_missing=allow_missing, allow_unexpected=allow_unexpected)
    return Conversion(dict(execute(plan, arrays)), Ledger(plan.entries), plan.unproven, plan.moves)


def check_keys(
    arrays: Mapping[str, Any],
    entries: Sequence[StateEntry | Mapping[str, Any]],
    source: str = "ref",
    *,
    path: str = "the checkpoint",
    allow_missing: Sequence[str] = (),
    allow_unexpected: Sequence[str] = (),
) -> tuple[list[StateEntry], list[str]]:
    """Compare the arrays' keys and shapes with the model's.

    Returns the layout of the arrays that are present, and the keys that the model lacks but that were allowed by name.
    Batch counters may be missing, as in checkpoints from before torch had them. Raises InputError for other
    differences.
    """
    known = [StateEntry.of(entry) for entry in entries]
    wanted = {entry.key: entry for entry in known if entry.persistent}
    optional = {key for key, entry in wanted.items() if entry.name == "num_batches_tracked"}
    problems = [
        f"missing {key!r}"
        for key in wanted
        if key not in arrays and key not in optional and not fits_any(key, allow_missing)
    ]
    extra = [key for key in arrays if key not in wanted]
    problems += [f"unexpected {key!r}" for key in extra if not fits_any(key, allow_unexpected)]
    problems += [
        f"{key!r} has shape {list(arrays[key].shape)}, the model has {list(entry.shape)}"
        for key, entry in wanted.items()
        if key in arrays and tuple(arrays[key].shape) != entry.shape
    ]
    if problems:
        shown = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        name = {"ref": "reference", "paddle": "paddle"}[source]
        options = [f"--allow-{word}" for word in ("missing", "unexpected") if any(p.startswith(word) for p in problems)]
        allow = f", or allow keys by name ({', '.join(options)})" if options else ""
        message = f"{path} does not belong to the {name} model: {shown}. Give the model that wrote it{allow}"
        raise ListedError(message, problems)
    return [entry for entry in known if entry.key in arrays or not entry.persistent], extra


def execute(plan: Plan, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Make the target's arrays one by one, in the target's order, each contiguous and in its own memory.

    Raises InputError if the target ties two keys and the source holds different numbers for them.
    """
    check_ties(plan, arrays)
    for move in plan.moves:
        made = make(move, arrays)
        source = arrays[move.pieces[0].key] if move.pieces else made
        yield move.target.key, made.copy() if move.pieces and np.may_share_memory(made, source) else made


def check_ties(plan: Plan, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise InputError if either model ties two keys and the source holds different numbers for them."""
    for kept, dropped in plan.dropped_ties:
        if not np.array_equal(_bits(arrays[kept]), _bits(arrays[dropped])):
            raise InputError(
                f"the source's model ties {dropped!r} to {kept!r}, but the checkpoint holds different numbers for "
                "them: give the model that wrote it"
            )
    made_from = {move.target.key: move for move in plan.moves}
    differing = [
        (first, second)
        for first, second in plan.ties
        if first in made_from
        and made_from[first].pieces != made_from[second].pieces
        and not np.array_equal(_bits(make(made_from[first], arrays)), _bits(make(made_from[second], arrays)))
    ]
    if differing:
        first, second = differing[0]
        raise InputError(
            f"the target ties {second!r} to {first!r}, but the source holds different numbers for them: "
            "untie them in the target model"
        )


def make(
    move: Move, arrays: Mapping[str, np.ndarray], scratch: Callable[[int], np.ndarray] | None = None
) -> np.ndarray:
    """The contiguous array of one target key; it shares the source's memory if no number has to move.

    `scratch` lends memory to transpose into: allocating it costs as much as the transposition.
    """
    if move.fill is not None:
        return np.full(move.target.shape, move.fill, move.target.dtype)
    pieces = []
    for piece in move.pieces:
        array = arrays[piece.key]
        array = array.T if piece.transposed else array
        array = array if piece.rows is None else array[slice(*piece.rows)]
        pieces.append(array if array.shape == piece.shape else array.reshape(piece.shape))
    joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    joined = in_order(joined.T if move.transposed else joined, scratch).reshape(move.target.shape)
    return joined if move.dtype is None else _cast(joined, move)


def _cast(array: np.ndarray, move: Move) -> np.ndarray:
    """Cast to the target's dtype; integers must keep their values."""
    dtype = numpy_dtype(move.dtype or "")
    result = array.astype(dtype)
    if array.dtype.kind in "iub" and not np.array_equal(result, array):
        raise InputError(f"{move.target.key!r}: {array.dtype} values do not fit into {dtype}")
    return result


def _bits(array: np.ndarray) -> np.ndarray:
    """The raw bytes, so that NaN equals NaN."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
