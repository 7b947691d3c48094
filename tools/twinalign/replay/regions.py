"""Which pairs of calls the forced pass gives up, because the end results of the region around them decide.

A layer of the port may do less or more than the layer that it is paired with: a batch norm whose activation is a layer
of its own, a norm that permutes its input. Then the layer is wrong, and so is the code beside it, which does the rest.
Without the pair both are code of one region, whose end results are judged. Where the end results of a region agree,
nothing inside it is wrong.
"""

import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.layer_calls import Call

CLEARLY_LESS = 0.1
"""A pair is given up if the ends behind it then differ by less than this share of what they did. Of two faults one
after the other the second keeps its own difference, so that without the first pair its end differs no less."""
_ROUNDS = 4
"""So often wrong layers of a unit are tested, every other one each time."""
_UNTOUCHED, _MOST = 0.01, 1e300
"""An end whose difference changes by less than this share is another layer's."""


def following(calls: Iterable[Call], paired: Container[int]) -> dict[int, Call]:
    """Number of a call with a partner → the call of a layer without one that is given what it returns."""
    by_input: dict[tuple[int | None, int | None], Call] = {
        (call.parent, call.inputs[0].number): call
        for call in calls
        if call.number not in paired and call.inputs and call.outputs and call.inputs[0].number is not None
    }
    found = {
        call.number: by_input.get((call.parent, call.outputs[0].number))
        for call in calls
        if call.number in paired and call.outputs
    }
    return {number: call for number, call in found.items() if call is not None and number < call.number}


def ends_behind(unit: ForcedCall) -> dict[int, list[str]]:
    """Each wrong layer, by its place in `children` → ends of the unit's own code that its values may reach.

    These are all up to the next wrong layer, and its own inputs.
    """
    found: dict[int, list[str]] = {}
    last: list[int] = []
    for place, child in enumerate(unit.children):
        wrong = [place] if any(name.startswith("output") for name in child.differences) else []
        inputs = [f"input.{child.label}.{number}" for number in range(len(child.given))]
        for other in (*last, *wrong):
            found.setdefault(other, []).extend(inputs)
        last = wrong or last
    for place in last:
        found[place] += [f"output.{number}" for number in range(len(unit.outputs))]
    return found


def numbers_from(unit: ForcedCall, first: int) -> set[int]:
    """Numbers of the calls inside a unit without those that ended before this one: they are right, with their pairs."""
    inside = list(unit.inside())
    around: set[int] = set()
    for one in reversed(inside):
        if one.parent is not None and (one.call.number == first or one.call.number in around):
            around.add(one.parent.call.number)
    return {one.call.number for one in inside if one.call.number >= first or one.call.number in around}


def borne_out(
    unit: ForcedCall,
    places: Sequence[int],
    behind: Mapping[int, Sequence[str]],
    with_extra_layers: set[int],
    more: Container[int] = (),
) -> tuple[Callable[[ForcedCall], set[int]], Callable[[ForcedCall], bool]]:
    """How a run without the pairs of some wrong layers is judged.

    Args:
        places: of these layers in `children`, no two of them next to each other among the wrong ones.
        behind: as `ends_behind` gave it.
        with_extra_layers: numbers of the reference's calls that call layers without partners.
        more: numbers of calls that do in the port what the reference's next layer does.

    Returns:
        For such a run the numbers of the calls whose pairs are to be given up; whether a run without these is right.
    """
    # Behind these the port calls a layer without a partner, and the reference's counterpart calls one inside.
    moved = {n for n in places if unit.children[n].call.number in with_extra_layers and n + 1 in unit.extra}
    children = {place: unit.children[place] for place in places}
    moved |= {n for n, one in children.items() if one.call.number in more or _pads_outside(unit, one)}
    moved |= {n for n, one in children.items() if _does_another_thing(unit, one)}
    known = {*unit.wrong_ends(), *(end for place in moved for end in behind[place])}
    known |= {end for child in children.values() for end in _of_other_shape(child)}

    def to_give_up(tried: ForcedCall) -> set[int]:
        return {
            unit.children[place].call.number
            for place in places
            if place in moved
            or _is_given_outside(unit.children[place], tried)
            or _mended(ends_of(tried, behind[place]))
        }

    def ends_of(tried: ForcedCall, ends: Iterable[str]) -> list[tuple[float, float]]:
        return [(_relative(unit, end), _relative(tried, end)) for end in ends]

    return to_give_up, lambda tried: tried.wrong_ends().keys() <= known


def _pads_outside(unit: ForcedCall, child: ForcedCall) -> bool:
    """Whether the code around a layer gives it as much more on each axis as it returns less on the reference's input.

    Then the padding that one side's layer does is done by the code around it on the other side.
    """
    name = f"input.{child.label}.0"
    by: list[list[int]] = []
    for one, at in ((unit, name), (child, "output.0")):
        ours, theirs = one.port.get(at), one.reference.get(at)
        if ours is None or theirs is None:
            return False
        by.append([a - b for a, b in zip(ours.shape, theirs.shape, strict=False)])
    return any(by[0]) and by[0] == [-less for less in by[1]]


def _mended(ends: Sequence[tuple[float, float]]) -> bool:
    """Whether ends are right now, or differ clearly less, and none differs more."""
    # Where shapes differ, a difference is infinite.
    touched = [(was, left) for was, left in ends if left != was and not abs(left - was) <= _UNTOUCHED * min(was, _MOST)]
    return all(left < CLEARLY_LESS * was for was, left in touched) and (
        bool(touched) or not any(was for was, _ in ends)
    )


def _does_another_thing(unit: ForcedCall, child: ForcedCall) -> bool:
    """Whether a layer is given tensors of another shape, and returns another number of them and others.

    It may run through all steps where its partner makes one.
    """
    of_other_shape = any(
        _relative(unit, f"input.{child.label}.{number}") == math.inf for number in range(len(child.given))
    )
    return of_other_shape and len(child.outputs) != len(child.call.outputs) and bool(child.wrong_ends())


def _of_other_shape(child: ForcedCall) -> set[str]:
    """What a layer gives to those inside in another shape than the reference's does."""
    ends = {f"input.{inner.label}.{number}" for inner in child.children for number in range(len(inner.given))}
    return {end for end in ends if _relative(child, end) == math.inf}


def _is_given_outside(child: ForcedCall, tried: ForcedCall) -> bool:
    """Whether the layers inside are given something of the right shape once the pair is given up, and were not before.

    A port may do outside of a layer what the reference does in it, such as an encoding of positions.
    """
    ends = _of_other_shape(child)
    return bool(ends) and all(_relative(tried, end) < math.inf for end in ends)


def _relative(unit: ForcedCall, end: str) -> float:
    return unit.differences[end].relative if end in unit.differences else 0.0


def tested_apart(
    found: ForcedCall,
    tried: Callable[..., ForcedCall],
    given_up: Collection[int],
    with_extra_layers: set[int],
    more: set[int],
) -> ForcedCall:
    """A unit without those pairs of wrong layers in it whose end results are right: every other layer is tested, and
    the rest, since the inputs of the next one are the end of one.

    Args:
        tried: runs a unit without the pairs of so many calls; takes what `borne_out` returns as well.
        given_up: numbers of the calls that run without their pairs, which `tried` adds to.
        with_extra_layers, more: as for `borne_out`.
    """
    tested: dict[int, int] = {}
    for _ in range(_ROUNDS):
        behind, known = ends_behind(found), len(given_up)
        # Without the pair of the one before, a layer may be right that was tested with it.
        part = [at for at in behind if tested.get(found.children[at].call.number) != known][::2]
        if not part:
            break
        numbers = {found.children[at].call.number for at in part}
        tested |= dict.fromkeys(numbers, known)
        found = tried(found, numbers, *borne_out(found, part, behind, with_extra_layers, more))
    return found
