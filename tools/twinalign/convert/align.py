"""Find the partner of every layer: by names, by what is unique, and at last by running both models."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

from twinalign.convert import storage
from twinalign.convert.names import fits_any
from twinalign.convert.plan import Side
from twinalign.convert.trial import AmbiguousError, Trial, align_by_trial
from twinalign.convert.units import Unit, differences, units_of
from twinalign.errors import InputError, SideCrashError


@dataclasses.dataclass
class Alignment:
    """Partners by paddle name for everything of the reference, and how they were found."""

    paths: dict[str, str]
    """Reference layer path → paddle layer path, for layers of known kinds."""
    keys: dict[str, str]
    """Reference key → paddle key, for tensors of the model's own classes."""
    matched_by: str
    """`order` (every kind and set of shapes occurs once, or the sequences agree) or `trial`."""


def align(
    reference: Side,
    paddle: Side,
    trial: Callable[[], Trial] | None,
    allowed: Sequence[str] = (),
    remedy: str = "",
) -> Alignment:
    """Align two models whose names differ.

    Where every kind and set of shapes occurs once on each side, that settles it. Otherwise both models are run
    (`trial` starts that; None: they cannot be run). Units whose keys are all `allowed` to lack a partner stand aside;
    `remedy` is what a user can do about others that lack one.

    Raises InputError where one side has what the other lacks, or nothing can be proven; DivergedError where the models
    compute different things.
    """
    mine, other = (_wanted(units_of(side.framework, side.layers), allowed) for side in (reference, paddle))
    missing = differences(mine, other)
    if missing:
        kinds = ("`", "only the reference", "only the paddle")
        of_either = [[line for line in missing if line.startswith(kind)][:3] for kind in kinds]
        shown = [line for lines in of_either for line in lines]
        raise InputError(
            f"the two models are different networks: {'; '.join(shown)}"
            f"{f' and {len(missing) - len(shown)} more such' if len(missing) > len(shown) else ''}"
            f"{f'. {remedy}' if remedy else ''}"
        )
    if max(Counter(unit.signature for unit in mine).values(), default=0) == 1:
        partners = {unit.signature: unit.name for unit in other}
        return _alignment({unit.name: partners[unit.signature] for unit in mine}, mine, "order")
    if trial is None:
        raise InputError(_unproven(mine, other))
    try:
        return _alignment(align_by_trial(trial(), mine, other), mine, "trial")
    except AmbiguousError as error:
        raise InputError(str(error)) from None
    except SideCrashError as error:
        raise InputError(f"{_unproven(mine, other)}. Running them was tried: {error}") from None


def _wanted(units: Sequence[Unit], allowed: Sequence[str]) -> list[Unit]:
    return [unit for unit in units if not all(fits_any(part.entry.key, allowed) for part in unit.stored)]


def _alignment(pairs: dict[str, str], reference: Sequence[Unit], matched_by: str) -> Alignment:
    kinds = {unit.name: unit.kind for unit in reference}
    return Alignment(
        {name: partner for name, partner in pairs.items() if kinds[name] != storage.RAW},
        {name: partner for name, partner in pairs.items() if kinds[name] == storage.RAW},
        matched_by,
    )


def _unproven(mine: Sequence[Unit], other: Sequence[Unit]) -> str:
    groups: dict[object, tuple[list[str], list[str]]] = {}
    for unit in mine:
        groups.setdefault(unit.signature, ([], []))[0].append(unit.name)
    for unit in other:
        groups[unit.signature][1].append(unit.name)
    shown = [f"{', '.join(left)} ↔ {', '.join(right)}" for left, right in groups.values() if len(left) > 1]
    return (
        "the names differ and shapes alone do not settle which layer is which; give rename rules, or an input to run "
        f"both models on (--input): {'; '.join(shown[:10])}"
    )
