"""Orders in which a layer of the port may take the inputs that its partner takes.

`gate(signal, features)` in one framework's code is `gate(features, signal)` in the other's. Where values are right they
tell which input is which; where what comes before is wrong, a right layer tells it by what it makes of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.layer_calls import Tensor

_MOST_INPUTS = 4
"""Of one shape, of which every order is tried."""


def other_orders(unit: ForcedCall, stands_for: Callable[[Any, Tensor], bool]) -> Iterator[list[int]]:
    """For each input of the partner's its place in another order; nothing where the values have decided.

    Args:
        stands_for: whether a tensor of the port is known to be this input of the partner's.
    """
    given = unit.given
    if len(given) != len(unit.call.inputs) or any(tensor is None for tensor in given):
        return
    shapes = [tuple(theirs.shape) for theirs in unit.call.inputs]
    places = range(len(shapes))
    unknown = [place for place in places if not stands_for(given[place], unit.call.inputs[place])]
    alike = [place for place in places if unknown and shapes[place] == shapes[unknown[0]]]
    if not 2 <= len(alike) <= _MOST_INPUTS:
        return
    for order in itertools.permutations(alike):
        if [*order] != alike:
            there = dict(zip(alike, order, strict=True))
            yield [there.get(place, place) for place in places]
