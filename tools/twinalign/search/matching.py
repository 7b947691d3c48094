"""Which call of the port belongs to which call of the reference.

Calls are matched inside matched calls, from the whole model downwards: by name, then by order, type and size between
calls that are matched already, and what is left by its values. What has no partner counts as code of the module around
it, whose layers it then calls: so layers find each other that one side holds in another container. What has neither a
partner nor layers of its own is shown; nothing is guessed.
"""

import dataclasses
import difflib
import itertools
import math
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence

from twinalign.replay.layer_calls import Call, Tensor
from twinalign.verdict.array_difference import same_sample

_CONTAINERS = ("Sequential", "ModuleList", "LayerList", "ModuleDict", "LayerDict")


@dataclasses.dataclass
class Matching:
    """Which calls belong together.

    Attributes:
        pairs: calls of the reference and the port that belong together, in the reference's order.
        how: number of the reference's call → `name`, `order` or `values`.
        alone: calls without a partner on either side, below matched calls; a layer of the port with weights of
            the reference is none.
    """

    pairs: list[tuple[Call, Call]] = dataclasses.field(default_factory=list)
    how: dict[int, str] = dataclasses.field(default_factory=dict)
    alone: dict[str, list[Call]] = dataclasses.field(default_factory=lambda: {"reference": [], "paddle": []})


def match_calls(
    reference: Sequence[Call], port: Sequence[Call], names: Mapping[str, str], known: Container[str] = ()
) -> Matching:
    """Match the calls of both sides; `names` gives each path of the port its path in the reference.

    Layers of the port whose paths are `known` hold weights of the layer of that name: they are no other layer's.
    """
    found = Matching()
    called = {call.path for call in reference}
    tree = _Tree(reference, port)
    tree.know({c.path: names[c.path] for c in port if c.path in known and names[c.path] in called})
    waiting = _match_level(found, tree.roots[0], tree.roots[1], tree, names)
    while waiting:
        ours, theirs = waiting.pop()
        waiting += _match_level(found, tree.below(ours), tree.below(theirs), tree, names)
    found.pairs.sort(key=lambda pair: pair[0].number)
    # A layer that holds a weight of the reference's, such as a weight norm, has its counterpart in what holds that.
    found.alone["paddle"] = [call for call in found.alone["paddle"] if call.path not in known]
    return found


def by_known_names(reference: Sequence[Call], port: Sequence[Call], pairs: Sequence[tuple[str, int, int]]) -> Matching:
    """The matching of these pairs, each of which is a path in the port, an ordinal and the reference's number."""
    by_number, by_place = {call.number: call for call in reference}, {(call.path, call.ordinal): call for call in port}
    found = Matching([(by_number[number], by_place[path, ordinal]) for path, ordinal, number in pairs])
    found.how = dict.fromkeys((ours.number for ours, _ in found.pairs), "name")
    found.alone["reference"] = [call for call in reference if call.number not in found.how]
    return found


class _Tree:
    """Which calls each call of either side made, and how many levels of calls that are.

    `known`: path in the port of a layer that is known to be another one of the reference's, which is called too → that.
    `held`: path of a module of either side → the reference's paths of all such layers inside.
    """

    def __init__(self, *sides: Sequence[Call]) -> None:
        self.roots = [[call for call in calls if call.parent is None] for calls in sides]
        self._below: dict[int, list[Call]] = {}
        for calls in sides:
            by_number = {call.number: call for call in calls}
            for call in calls:
                if call.parent is not None:
                    self._below.setdefault(id(by_number[call.parent]), []).append(call)
        self._heights: dict[int, int] = {}
        self.known: Mapping[str, str] = {}
        self.held: tuple[dict[str, set[str]], dict[str, set[str]]] = ({}, {})
        for calls in sides:
            for call in reversed(calls):  # a call begins before those that it makes
                self._heights[id(call)] = 1 + max((self.height(child) for child in self.below(call)), default=-1)

    def know(self, known: Mapping[str, str]) -> None:
        self.known, self.held = known, ({}, {})
        for path, other in known.items():
            for held, inner in zip(self.held, (other, path), strict=True):
                while inner := inner.rpartition(".")[0]:
                    held.setdefault(inner, set()).add(other)

    def below(self, call: Call) -> list[Call]:
        return self._below.get(id(call), [])

    def inside(self, call: Call) -> Iterator[Call]:
        """All that a call makes, and what that makes."""
        for one in self.below(call):
            yield one
            yield from self.inside(one)

    def height(self, call: Call) -> int:
        return self._heights[id(call)]


def _match_level(
    found: Matching, ours: Sequence[Call], theirs: Sequence[Call], tree: _Tree, names: Mapping[str, str]
) -> list[tuple[Call, Call]]:
    """Match the calls that two matched calls made directly, or through calls that have no partner."""
    while True:
        partner, how = _partners(ours, theirs, tree, names)
        alone = [
            [call for place, call in enumerate(calls) if place not in matched]
            for calls, matched in ((ours, partner.keys()), (theirs, set(partner.values())))
        ]
        opened = _to_open(_not_inside_others(alone, tree, names), tree)
        if not opened:
            break
        ours, theirs = (
            [inside for call in calls for inside in (tree.below(call) if id(call) in opened else [call])]
            for calls in (ours, theirs)
        )
    pairs = [(ours[place], theirs[other]) for place, other in partner.items()]
    found.pairs += pairs
    found.how |= {ours[place].number: reason for place, reason in how.items()}
    found.alone["reference"] += alone[0]
    found.alone["paddle"] += alone[1]
    return pairs


def _not_inside_others(alone: Sequence[Sequence[Call]], tree: _Tree, names: Mapping[str, str]) -> list[Call]:
    """Calls without a partner; those whose partner by name another one holds only where there is nothing else."""
    held = [{inside.path for call in calls for inside in tree.inside(call)} for calls in alone]
    held[1] = {names[path] for path in held[1]}
    waits = [call for call in alone[0] if call.path in held[1]]
    waits += [call for call in alone[1] if names[call.path] in held[0]]
    every = [call for calls in alone for call in calls]
    others = [call for call in every if all(call is not one for one in waits)]
    return others if any(map(tree.height, others)) else every


def _to_open(alone: Sequence[Call], tree: _Tree) -> set[int]:
    """Which calls without a partner give their place to the calls that they made, by `id`.

    Containers without code of their own come first, and the tallest of them: a block is to meet a block, and not the
    container that the other side holds its blocks in.
    """
    able = [call for call in alone if tree.height(call)]
    able = [call for call in able if call.layer.rpartition(".")[2] in _CONTAINERS] or able
    tallest = max((tree.height(call) for call in able), default=0)
    return {id(call) for call in able if tree.height(call) == tallest}


def _partners(
    ours: Sequence[Call], theirs: Sequence[Call], tree: _Tree, names: Mapping[str, str]
) -> tuple[dict[int, int], dict[int, str]]:
    """Place of a call → place of its partner, and how it was found."""
    by_layers = _by_layers(ours, theirs, tree, names)
    partner = _by_names(ours, theirs, {**names, **by_layers} if by_layers else names)
    how = dict.fromkeys(partner, "name")
    _between(ours, theirs, partner, how, tree.known)
    for place, call in enumerate(ours):
        if place in partner:
            continue
        taken = set(partner.values())
        # A container may return what its last layer returns: their heights tell them apart.
        rest = [n for n, other in enumerate(theirs) if n not in taken and tree.height(other) == tree.height(call)]
        same = [n for n in rest if _same_values(call, theirs[n])]
        if len(same) == 1:
            partner[place], how[place] = same[0], "values"
    return partner, how


def _by_names(ours: Sequence[Call], theirs: Sequence[Call], names: Mapping[str, str]) -> dict[int, int]:
    """Pair the calls of one layer: those that are given the same first, for independent calls may come in any order
    (an online network on this state and on the next one); then the first with the first, and so on.
    """
    calls: dict[str, tuple[list[int], list[int]]] = {}
    for side, paths in enumerate(([call.path for call in ours], [names[call.path] for call in theirs])):
        for place, path in enumerate(paths):
            calls.setdefault(path, ([], []))[side].append(place)
    partner: dict[int, int] = {}
    for mine, other in calls.values():
        given = [(m, o) for m in mine for o in other if len(mine) + len(other) > 2 and _same_inputs(ours[m], theirs[o])]
        alike = [Counter(pair[side] for pair in given) for side in (0, 1)]
        partner |= {m: o for m, o in given if alike[0][m] == alike[1][o] == 1}
        taken = set(partner.values())
        places = {theirs[place].ordinal: place for place in other if place not in taken}
        partner |= {m: places[ours[m].ordinal] for m in mine if m not in partner and ours[m].ordinal in places}
        taken = set(partner.values())
        left = [m for m in mine if m not in partner], [o for o in other if o not in taken]
        if len(left[0]) == len(left[1]):  # called elsewhere as well, before this one or after it
            partner |= dict(zip(*left, strict=True))
    return dict(sorted(partner.items()))


def _by_layers(ours: Sequence[Call], theirs: Sequence[Call], tree: _Tree, names: Mapping[str, str]) -> dict[str, str]:
    """Path of a module of the port that has no partner by name → that of the one which holds the same layers, as deep,
    and takes as many tensors: an online network and its target are of one class, and may be called in any order.
    """
    named = {names[call.path] for call in theirs}
    holders: dict[tuple[int, int, frozenset[str]], set[str]] = {}
    for call in ours:
        if call.path not in named and call.path in tree.held[0]:
            kind = tree.height(call), len(call.inputs), frozenset(tree.held[0][call.path])
            holders.setdefault(kind, set()).add(call.path)
    found = {}
    paths = {call.path for call in ours}
    for call in theirs:
        kind = tree.height(call), len(call.inputs), frozenset(tree.held[1].get(call.path, ()))
        same = holders.get(kind, set())
        if names[call.path] not in paths and len(same) == 1:
            found[call.path] = next(iter(same))
    return found


def _same_inputs(ours: Call, theirs: Call) -> bool:
    if not ours.inputs or _sizes(ours.inputs) != _sizes(theirs.inputs):
        return False
    pairs = list(zip(ours.inputs, theirs.inputs, strict=True))
    return any(any(mine.sample) for mine, _ in pairs) and all(same_sample(m.sample, o.sample) for m, o in pairs)


def _between(
    ours: Sequence[Call],
    theirs: Sequence[Call],
    partner: dict[int, int],
    how: dict[int, str],
    known: Mapping[str, str],
) -> None:
    """Match by order what lies between calls that are matched, where type and sizes agree.

    A layer that is `known` to be another of the reference's is called in the place of this one: a fault of that code.
    """
    anchors = [(-1, -1), *_rising(sorted(partner.items())), (len(ours), len(theirs))]
    taken = set(partner.values())
    for (start, their_start), (stop, their_stop) in itertools.pairwise(anchors):
        mine = [place for place in range(start + 1, stop) if place not in partner]
        other = [place for place in range(their_start + 1, their_stop) if place not in taken]
        if not mine or not other:
            continue
        other = [place for place in other if theirs[place].path not in known]
        kinds = [_signature(ours[p]) for p in mine], [_signature(theirs[p]) for p in other]
        for block in difflib.SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
            for step in range(block.size):
                if _hold_other_layers(ours[mine[block.a + step]], theirs[other[block.b + step]], known):
                    continue
                partner[mine[block.a + step]] = other[block.b + step]
                how[mine[block.a + step]] = "order"


def _hold_other_layers(ours: Call, theirs: Call, known: Mapping[str, str]) -> bool:
    """Whether the port's runs layers that are known to stand outside the reference's: one of them, where both do
    nothing but run their layers, else nothing but such ones (an online network and its target are of one class).
    """
    inside = [other for path, other in known.items() if path.startswith(f"{theirs.path}.")]
    outside = [other for other in inside if not other.startswith(f"{ours.path}.")]
    if any(call.layer.rpartition(".")[2] not in _CONTAINERS for call in (ours, theirs)):
        return bool(outside) and outside == inside
    return bool(outside)


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that keep the order on the other side too."""
    kept: list[tuple[int, int]] = []
    for pair in pairs:
        if not kept or pair[1] > kept[-1][1]:
            kept.append(pair)
    return kept


def _signature(call: Call) -> tuple:
    """Kind of layer without its framework's spelling, and sizes of what goes in and out, in whatever layout."""
    kind = re.sub(r"[^a-z0-9]", "", call.layer.rpartition(".")[2].lower())
    return kind, _sizes(call.inputs), _sizes(call.outputs)


def _sizes(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(math.prod(tensor.shape) for tensor in tensors)


def _same_values(ours: Call, theirs: Call) -> bool:
    if not ours.outputs or _sizes(ours.outputs) != _sizes(theirs.outputs):
        return False
    if _sizes(ours.inputs) != _sizes(theirs.inputs):
        return False
    # Of a norm, and of the layers from the convolution before it on, the results are the same, and what they are given
    # is not.
    ends = zip((*ours.inputs, *ours.outputs), (*theirs.inputs, *theirs.outputs), strict=True)
    return all(same_sample(mine.sample, other.sample) for mine, other in ends) and all(
        any(mine.sample) for mine in ours.outputs
    )
