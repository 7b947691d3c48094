"""Calls of one layer on the same values: one side may make several where the other makes one and uses it again.

Values are the same then, and gradients are in their sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.layer_calls import Call, Tensor
from twinalign.replay.tensor_store import TensorStore


def note_repeated(units: Sequence[ForcedCall], calls: Mapping[int, Call], store: TensorStore) -> None:
    """Give units the reference's further calls that are the same as their own and that the port lacks.

    `calls`: all of the reference's, by number.
    """
    by_number = {unit.call.number: unit for unit in units if unit.layer is not None}
    inside: dict[int | None, list[Call]] = {}
    for call in calls.values():
        inside.setdefault(call.parent, []).append(call)

    def alike(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
        return len(one) == len(other) and all(map(same, one, other))

    def same(one: Tensor, other: Tensor) -> bool:
        if one.number is None or other.number is None or one.shape != other.shape or one.sample != other.sample:
            return False
        return one.number == other.number or np.array_equal(store.read(one.number), store.read(other.number))

    def note(first: Call, further: Call) -> None:
        if first.number in by_number:
            by_number[first.number].repeated.append(further)
        for both in zip(inside.get(first.number, ()), inside.get(further.number, ()), strict=True):
            note(*both)

    for siblings in inside.values():
        for number, further in enumerate(siblings):
            if further.number in by_number or further.random:
                continue
            known = (one for one in siblings[:number] if one.path == further.path and one.number in by_number)
            for first in known:
                is_whole = list(_paths(inside, first)) == list(_paths(inside, further))
                if is_whole and alike(first.inputs, further.inputs) and alike(first.outputs, further.outputs):
                    note(first, further)
                    break


def _paths(inside: Mapping[int | None, Sequence[Call]], call: Call) -> Iterator[str]:
    """The layers that a call calls, in their order."""
    for one in inside.get(call.number, ()):
        yield one.path
        yield from _paths(inside, one)


def same_as_before(units: Iterable[ForcedCall], path: str, tensors: Sequence[Any], backend: Any) -> ForcedCall | None:
    """The unit, of those that code has called before, whose results a further call of its layer gives again.

    None for a layer that draws random numbers or moves buffers, as each call does that anew.
    """
    for unit in units:
        if unit.path == path and unit.ended and len(unit.given) == len(tensors) == len(unit.order):
            given = [tensors[place] for place in unit.order]
            calls = [one.call for one in (unit, *unit.inside())]
            if not any(call.random or call.state_after for call in calls) and all(
                one is other or _equal(one, other, backend) for one, other in zip(given, unit.given, strict=True)
            ):
                return unit
    return None


def _equal(one: Any, other: Any, backend: Any) -> bool:
    if other is None or tuple(one.shape) != tuple(other.shape):
        return False
    return np.array_equal(backend.to_array(one), backend.to_array(other))


def places_of_repeated(unit: ForcedCall) -> Iterator[tuple[str, list[str]]]:
    """Each input and output of a unit that has further calls, and where these have the same."""
    for end, tensors in (("input", unit.call.inputs), ("output", unit.call.outputs)) if unit.repeated else ():
        yield from _places(end, tensors, unit.call, unit.repeated)


def _places(end: str, tensors: Sequence[Tensor], call: Call, others: Sequence[Call]) -> Iterator[tuple[str, list[str]]]:
    for at in range(len(tensors)):
        yield f"{end}.{call.number}.{at}", [f"{end}.{other.number}.{at}" for other in others]


def children_of(unit: ForcedCall) -> list[tuple[ForcedCall, Call]]:
    """The layers in a unit's own code with each call that the reference's code has of them."""
    found = [(child, call) for child in unit.children for call in (child.call, *_inside(unit, child))]
    repeats = len(found) > len(unit.children)
    return sorted(found, key=lambda both: both[1].number) if repeats else found


def ends_of(unit: ForcedCall) -> Iterator[tuple[str, list[str]]]:
    """Where the reference's code of a unit ends, its results and its layers' inputs, each with the places elsewhere in
    the reference whose gradients the port has in it as well."""
    yield from _places("output", unit.call.outputs, unit.call, unit.repeated)
    for child, call in children_of(unit):
        outside = [one for one in child.repeated if one.parent != unit.call.number] if call is child.call else []
        yield from _places("input", call.inputs, call, outside)


def added_up(unit: ForcedCall) -> list[tuple[str, list[str]]]:
    """Names of gradients of a unit, each with those in the reference's code that the port has in it as well."""
    found = [
        (f"gradient.input.{place}", [f"gradient.input.{other}" for other in others])
        for place, others in unit.given_again.items()
    ]
    for child in unit.children:
        if inside := _inside(unit, child):
            for at in range(len(child.call.outputs)):
                more = [f"gradient.child.{call.label}.{at}" for call in inside]
                found.append((f"gradient.child.{child.label}.{at}", more))
    return found


def _inside(unit: ForcedCall, child: ForcedCall) -> list[Call]:
    return [call for call in child.repeated if call.parent == unit.call.number]
