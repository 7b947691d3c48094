"""The forced pass begun anew until it runs to its end, without the pairs that keep it from running."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Iterable, Mapping

from twinalign.replay.forced_call import ForcedCall, UnitFailedError, is_joined
from twinalign.replay.layer_calls import FORWARD, LOSS, Call
from twinalign.replay.port_forward import ForcedForward

Pairs = Mapping[tuple[str, int], Call]
"""(Path in the port, ordinal) → the partner's call."""
_MOST_ATTEMPTS = 8
"""The pass begins anew this many times for layers that do not run, and for pairs that hold other parts."""


def passed(begin: Callable[[Pairs], ForcedForward], pairs: Pairs) -> tuple[ForcedForward, dict[str, str]]:
    """Run the forced pass; returns it, and why some layers, by their paths, were not judged alone.

    Args:
        begin: makes the pass with these pairs, before it runs.
    """
    left_out: dict[str, str] = {}
    forced, failed = _attempt(begin, pairs)
    if failed is not None and "inplace" in str(failed):
        begin = functools.partial(_on_copies, begin)
        forced, failed = _attempt(begin, pairs)
    if (joining := _without_joining(begin, pairs, forced)) is not None:
        pairs, left_out, forced, failed = joining
    for _ in range(_MOST_ATTEMPTS):
        if failed is None:
            break
        other = _without_other_parts(begin, pairs, forced, failed)
        if other is not None:
            pairs, given_up, forced, failed = other
            left_out |= given_up
        elif (whole := _as_a_whole(begin, pairs, forced, failed)) is not None:
            left_out |= whole[1]
            forced, failed = whole[0], None
        elif failed.unit.layer is not None:
            # With its layers it counts as code of the module around it from now on.
            left_out[failed.unit.path] = str(failed)
            inside = f"{failed.unit.path}."
            pairs = {key: call for key, call in pairs.items() if not f"{key[0]}.".startswith(inside)}
            forced, failed = _attempt(begin, pairs)
        else:
            break
    if failed is not None:
        left_out[failed.unit.path] = f"{failed}; what comes after it was not judged"
    return forced, left_out


def _on_copies(begin: Callable[[Pairs], ForcedForward], pairs: Pairs) -> ForcedForward:
    forced = begin(pairs)
    forced.on_copies = True
    return forced


def _attempt(begin: Callable[[Pairs], ForcedForward], pairs: Pairs) -> tuple[ForcedForward, UnitFailedError | None]:
    forced = begin(pairs)
    try:
        forced()
    except UnitFailedError as failed:
        return forced, failed
    return forced, None


def _as_a_whole(
    begin: Callable[[Pairs], ForcedForward], pairs: Pairs, forced: ForcedForward, failed: UnitFailedError
) -> tuple[ForcedForward, dict[str, str]] | None:
    """The pass in which a unit runs with its own layers, and why these were not judged alone; None if that fails too.

    Code that differentiates through its layers, as for a gradient penalty or for forces, cannot be given the
    reference's values in their place. Its layers have given what the reference's give as far as they have run.
    """
    if not failed.unit.children or any(unit.differences for unit in forced.units):
        return None
    around = failed.unit.call.number
    is_model = failed.unit.path in ("", FORWARD)
    numbers = set[int]()
    for (path, _), call in sorted(pairs.items(), key=lambda pair: pair[1].number):
        # What calls a layer in the reference may have no partner itself: then it is known by its place in the port.
        is_inside = path not in ("", FORWARD, LOSS) if is_model else path.startswith(f"{failed.unit.path}.")
        if is_inside or call.parent == around or call.parent in numbers:
            numbers.add(call.number)
    whole = begin(pairs)
    whole.given_up |= {number: set() for number in numbers}
    try:
        whole()
    except UnitFailedError:
        return None
    given_up = dict.fromkeys(path for (path, _), call in pairs.items() if call.number in numbers)
    inside = [path for path in given_up if not any(path.startswith(f"{outer}.") for outer in given_up)]
    reason = f"{failed}; it was judged with the code around it"
    return whole, dict.fromkeys(inside, reason)


def _without_other_parts(
    begin: Callable[[Pairs], ForcedForward], pairs: Pairs, forced: ForcedForward, failed: UnitFailedError
) -> tuple[Pairs, dict[str, str], ForcedForward, UnitFailedError | None] | None:
    """The pairs with which the pass comes further, why others are given up, and the pass; None if nothing helps.

    A layer that takes or returns a tensor of another size than its partner holds another part of the model: one port
    makes an image smaller at the end of a stage, another at the beginning of the next. What comes after cannot run on
    what the partner hands on. Without such pairs the layers inside are judged, and the rest is code around them.
    """
    given_up: dict[str, str] = {}
    again: UnitFailedError | None = failed
    for _ in range(_MOST_ATTEMPTS):
        found = _other_part(forced.units)
        if found is None:
            break
        given_up[found[0]] = found[1]
        pairs = {key: call for key, call in pairs.items() if key[0] != found[0]}
        forced, again = _attempt(begin, pairs)
    else:
        return None
    further = again is None or again.unit.call.number > failed.unit.call.number
    return (pairs, given_up, forced, again) if further else None


def _other_part(units: Iterable[ForcedCall]) -> tuple[str, str] | None:
    """Path of the first unit, in the order in which they run, that has a tensor of another size, and what that is."""
    for unit in units:
        if unit.layer is None or not unit.path:
            continue
        ends = (("takes", unit.given, unit.call.inputs), ("returns", unit.outputs, unit.call.outputs))
        for verb, ours, theirs in ends:
            for tensor, other in zip(ours, theirs, strict=False):
                if tensor is not None and math.prod(tensor.shape) != math.prod(other.shape):
                    text = f"{verb} {list(tensor.shape)} where its counterpart {verb} {other.shape}"
                    return unit.path, f"it {text}; its own code was judged with the code around it"
    return None


def _without_joining(
    begin: Callable[[Pairs], ForcedForward], pairs: Pairs, forced: ForcedForward
) -> tuple[Pairs, dict[str, str], ForcedForward, UnitFailedError | None] | None:
    """The pass without layers that join what their partners take or return in several tensors, or the other way round.

    What is handed on in the port's containers would be a part of it. None where there are none, or where the layers
    inside of them then take or return tensors of other sizes than their partners.
    """
    joining: list[str] = []
    failed: UnitFailedError | None = None
    while (path := joining_path(forced.units, joining)) is not None:
        joining.append(path)
        pairs = {key: call for key, call in pairs.items() if key[0] not in joining}
        forced, failed = _attempt(begin, pairs)
    inside = tuple(f"{path}." for path in joining)
    if not joining or _other_part(unit for unit in forced.units if unit.path.startswith(inside)) is not None:
        return None
    text = (
        "its counterpart takes or returns as much in another number of tensors; it was judged with the code around it"
    )
    return pairs, dict.fromkeys(joining, text), forced, failed


def joining_path(units: Iterable[ForcedCall], known: Container[str] = ()) -> str | None:
    """Path of the first unit, but for those that are known, that joins what its partner takes or returns."""
    judged = (unit for unit in units if unit.layer is not None and unit.path and unit.path not in known)
    return next((u.path for u in judged if u.takes_joined or is_joined(u.outputs, u.call.outputs)), None)
