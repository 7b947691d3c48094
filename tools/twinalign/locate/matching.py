"""Which call of the port belongs to which call of the reference.

Calls are matched inside matched calls, from the whole model downwards: by name, then by order, type and shape between
calls that are matched already, and what is left by its values. What has no partner is shown and counts as code of the
module around it; nothing is guessed.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence

from twinalign.locate.calls import Call, Tensor
from twinalign.locate.measuring import same_sample


@dataclasses.dataclass
class Matching:
    """The result.

    Attributes:
        pairs: calls of the reference and the port that belong together, in the reference's order.
        how: number of the reference's call → `name`, `order` or `values`.
        alone: calls without a partner on either side, below matched calls.
    """

    pairs: list[tuple[Call, Call]] = dataclasses.field(default_factory=list)
    how: dict[int, str] = dataclasses.field(default_factory=dict)
    alone: dict[str, list[Call]] = dataclasses.field(default_factory=lambda: {"reference": [], "paddle": []})


def match_calls(reference: Sequence[Call], port: Sequence[Call], names: Mapping[str, str]) -> Matching:
    """Match the calls of both sides; `names` gives each path of the port its path in the reference."""
    found = Matching()
    children = [_children(calls) for calls in (reference, port)]
    waiting = _match_level(found, children[0].get(None, []), children[1].get(None, []), names)
    while waiting:
        ours, theirs = waiting.pop()
        waiting += _match_level(found, children[0].get(ours.number, []), children[1].get(theirs.number, []), names)
    found.pairs.sort(key=lambda pair: pair[0].number)
    return found


def _children(calls: Sequence[Call]) -> dict[int | None, list[Call]]:
    below: dict[int | None, list[Call]] = {}
    for call in calls:
        below.setdefault(call.parent, []).append(call)
    return below


def _match_level(
    found: Matching, ours: Sequence[Call], theirs: Sequence[Call], names: Mapping[str, str]
) -> list[tuple[Call, Call]]:
    """Match the calls that two matched calls made directly."""
    partner: dict[int, int] = {}
    how: dict[int, str] = {}
    places = {(names[call.path], call.ordinal): place for place, call in enumerate(theirs)}
    for place, call in enumerate(ours):
        if (call.path, call.ordinal) in places:
            partner[place], how[place] = places[call.path, call.ordinal], "name"
    _between(ours, theirs, partner, how, "order", _signature)
    for place, call in enumerate(ours):
        if place not in partner:
            same = [n for n, other in enumerate(theirs) if n not in partner.values() and _same_values(call, other)]
            if len(same) == 1:
                partner[place], how[place] = same[0], "values"
    pairs = [(ours[place], theirs[other]) for place, other in partner.items()]
    found.pairs += pairs
    found.how |= {ours[place].number: reason for place, reason in how.items()}
    found.alone["reference"] += [call for place, call in enumerate(ours) if place not in partner]
    found.alone["paddle"] += [call for place, call in enumerate(theirs) if place not in partner.values()]
    return pairs


def _between(
    ours: Sequence[Call],
    theirs: Sequence[Call],
    partner: dict[int, int],
    how: dict[int, str],
    reason: str,
    signature: Callable[[Call], tuple],
) -> None:
    """Match by order what lies between calls that are matched, where type and shapes agree."""
    anchors = [(-1, -1), *_rising(sorted(partner.items())), (len(ours), len(theirs))]
    taken = set(partner.values())
    for (start, their_start), (stop, their_stop) in itertools.pairwise(anchors):
        mine = [place for place in range(start + 1, stop) if place not in partner]
        other = [place for place in range(their_start + 1, their_stop) if place not in taken]
        if not mine or not other:
            continue
        blocks = difflib.SequenceMatcher(
            None, [signature(ours[p]) for p in mine], [signature(theirs[p]) for p in other], autojunk=False
        ).get_matching_blocks()
        for block in blocks:
            for step in range(block.size):
                partner[mine[block.a + step]] = other[block.b + step]
                how[mine[block.a + step]] = reason


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that keep the order on the other side too."""
    kept: list[tuple[int, int]] = []
    for pair in pairs:
        if not kept or pair[1] > kept[-1][1]:
            kept.append(pair)
    return kept


def _signature(call: Call) -> tuple:
    """Kind of layer without its framework's spelling, and shapes of what goes in and out."""
    kind = re.sub(r"[^a-z0-9]", "", call.layer.rpartition(".")[2].lower())
    return kind, _shapes(call.inputs), _shapes(call.outputs)


def _shapes(tensors: Sequence[Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tensor.shape) for tensor in tensors)


def _same_values(ours: Call, theirs: Call) -> bool:
    if not ours.outputs or len(ours.outputs) != len(theirs.outputs):
        return False
    return all(
        mine.shape == other.shape and same_sample(mine.sample, other.sample) and any(mine.sample)
        for mine, other in zip(ours.outputs, theirs.outputs, strict=True)
    )
