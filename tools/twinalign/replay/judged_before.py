"""Units of the forced pass that need not run.

Every unit is given the reference's inputs, whatever ran before it. So where the code around it runs a second time,
without the pairs of other calls, a unit would compute what it has computed already. And where only some units are to
be judged, what the reference's calls return stands in for all others.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.layer_calls import Call
from twinalign.replay.mask_forms import Form
from twinalign.verdict.array_difference import distance_of_samples

_CLEARLY = 100.0
"""The bound is for one layer, and many may stand in what is compared."""


@dataclasses.dataclass(frozen=True)
class Result:
    """How the port has what a call returns: as `ForcedCall` has these."""

    result: tuple[Any, Sequence[int]]
    layouts: Mapping[str, Form]
    counted: Counter[str]
    order: Sequence[int]


@dataclasses.dataclass(frozen=True)
class StandIns:
    """What stands in for units that an earlier pass has judged.

    Attributes:
        results: number of a call → how the port had its result.
        given_up: numbers of the calls that run without their pairs, as in the earlier pass.
        needed: numbers of the calls that must run.
        last: that of them behind which the pass may end.
    """

    results: Mapping[int, Result]
    given_up: Collection[int]
    needed: Collection[int]
    last: int

    def of(self, number: int) -> Result | None:
        """How the port had the result of a call, None if the call is to run."""
        return None if number in self.needed else self.results.get(number)


def results_of(units: Iterable[ForcedCall]) -> dict[int, Result]:
    """Number of a call → how the port has its result, of the units for which the reference's result can stand in."""
    return {
        unit.call.number: Result(
            unit.result,
            {place: layout for place, layout in unit.layouts.items() if place.startswith("output.")},
            unit.counted,
            unit.order,
        )
        for unit in units
        if unit.ended and len(unit.handed_on) == len(unit.call.outputs)
    }


def able_to_stand(found: ForcedCall, moved: Collection[str]) -> dict[int, ForcedCall]:
    """Number of a call → its unit inside `found`, for units that may stand for themselves when that runs again.

    Not those that draw random numbers or change the model: `moved` are the port's names of what changes in `found`.
    """
    return {
        unit.call.number: unit
        for unit in found.inside()
        if unit.ended
        and unit.layer is not None
        and not any(name.startswith(f"{unit.path}.") for name in moved)
        and not any(inner.call.random for inner in (unit, *unit.inside()))
    }


def stands_for(
    before: ForcedCall, unit: ForcedCall, given_up: Mapping[int, Any], version_of: Callable[[Any], int]
) -> bool:
    """Whether a unit, which has its inputs and has not run, would compute what the same one computed before.

    Args:
        given_up: by their numbers, the calls that run without their pairs now.
    """
    return (
        _number_around(before) == _number_around(unit)
        and _given_as_in_reference(before)
        and _given_as_in_reference(unit)
        and _equal(before.signature, unit.signature)
        and before.given_up <= given_up.keys()
        and given_up.keys().isdisjoint(inner.call.number for inner in before.inside())
        and before.versions == [version_of(tensor) for tensor in before.passed_on()]
    )


def _number_around(unit: ForcedCall) -> int | None:
    return unit.parent.call.number if unit.parent is not None else None


def _given_as_in_reference(unit: ForcedCall) -> bool:
    """Whether all inputs are the reference's: of one in another form the values may be the port's own."""
    return [list(tensor.shape) for tensor in unit.inputs] == [theirs.shape for theirs in unit.call.inputs]


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # arguments of any kind, arrays among them, whose comparison is no yes or no
        return False


def distances_alone(own: Sequence[Call], partners: Mapping[tuple[str, int], Call]) -> dict[int, float]:
    """Number of a reference's call → how far from it what its partner returns is in the port's own pass, by samples."""
    pairs = ((call, theirs) for call in own if (theirs := partners.get((call.path, call.ordinal))) is not None)
    return {
        theirs.number: max(
            (
                distance_of_samples(mine.sample, other.sample)
                for mine, other in zip(call.outputs, theirs.outputs, strict=False)
                if mine.sample and mine.shape == other.shape
            ),
            default=0.0,
        )
        for call, theirs in pairs
    }


def clearly_wrong(distance: float, bound: float) -> bool:
    """Whether neither rounding nor constants kept in float32, which explain up to `bound`, can be at this distance."""
    return distance > _CLEARLY * bound


def with_those_around(numbers: Iterable[int], calls: Mapping[int, Call]) -> set[int]:
    """These calls and all those in which they are made."""
    found: set[int] = set()
    for number in numbers:
        outer: int | None = number
        while outer is not None:
            found.add(outer)
            outer = calls[outer].parent
    return found


def last_to_end(numbers: Collection[int], calls: Mapping[int, Call]) -> int:
    """The one of these calls that ends when all others have."""
    return min(with_those_around([max(numbers)], calls).intersection(numbers))
