"""Find which layer corresponds to which by running both models, whatever their names and order.

Layers that agree in their names start as pairs; all others of one colour (at first: one kind and one set of shapes)
get the same weights in both frameworks. If they receive different inputs, the colour is split by input; then both
models run again with the finer colours, until no colour splits. Layers that still share a colour are in symmetric
positions, or behind a place where the models compute different things. There values that are nearly the same tell them
apart (another epsilon changes little), then their position among the pairs, and a last run says whether that is proven.
This is colour refinement with individualisation, as for graph isomorphism, on numbers.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.conversion.alike_names import in_order_of_names
from twinalign.conversion.branches import branches_of, crosses
from twinalign.conversion.fingerprints import EQUAL, NEARLY, all_agree
from twinalign.conversion.layers_to_match import Matchable
from twinalign.conversion.remote_model import BothModels, Run, outputs_agree
from twinalign.conversion.storage import RAW
from twinalign.conversion.where_models_differ import where_they_part
from twinalign.errors import DivergedError, TwinalignError

_Matchables = Sequence[Matchable]
_Colours = tuple[dict[str, str], dict[str, str]]
"""The colour of each matchable by name, for either side."""
_MAXIMUM_ROUNDS = 12
_MAXIMUM_ATTEMPTS = 200
_REST = "/rest"
"""Ends the colour of what receives values that no partner receives."""
_ATTEMPTS_WITHOUT_PROOF = 12
"""Where the models compute different things, no pairing can be proven: few are tried."""


class AmbiguousError(TwinalignError):
    """More than one matching fits and none could be proven."""


@dataclasses.dataclass(frozen=True)
class Found:
    """`{reference matchable: paddle matchable}`, and what speaks for it."""

    pairs: dict[str, str]
    supported: frozenset[str] = frozenset()
    """Reference matchables that receive the same values as their partners."""
    doubt: TwinalignError | None = None
    """Why the pairs are not proven; None: the models agree with them."""


def match_by_running(
    trial: BothModels, reference: _Matchables, paddle: _Matchables, anchors: Mapping[str, str]
) -> Found:
    """The proven matching, or, if the models differ under every one, that under which most layers agree.

    `anchors` are pairs that names suggest. They are dropped if they keep the models from agreeing. Values do not make a
    frozen part the partner of a trained one of another name (see `branches.crosses`): a port that runs its target
    network in place of the trained one computes the same, and is wrong.
    """
    found = _by_values(trial, reference, paddle, anchors)
    if crosses(found.pairs, reference, paddle):
        return _Search(trial, reference, paddle).refined(anchors, apart=True)
    return found


def _by_values(trial: BothModels, reference: _Matchables, paddle: _Matchables, anchors: Mapping[str, str]) -> Found:
    in_order: dict[str, str] = {}
    if [matchable.signature for matchable in reference] == [matchable.signature for matchable in paddle]:
        # Both list the same kinds and shapes in the same order: most likely that is the assignment, and one run tells.
        in_order = {mine.name: other.name for mine, other in zip(reference, paddle, strict=True)}
    search = _Search(trial, reference, paddle)
    tried = []
    # What the models never call agrees in every order: names, and what is frozen, are heard first.
    branches = branches_of(reference, paddle)
    stay = all(
        branches[0][mine.name] == branches[1][other.name] and mine.is_trained == other.is_trained
        for mine, other in zip(reference, paddle, strict=False)
    )
    if in_order and stay and all(in_order[mine] == other for mine, other in anchors.items()):
        found = search.checked(in_order)
        if found.doubt is None:
            return found
    for start in (anchors, {}) if anchors else ({},):
        found = search.refined(start)
        if found.doubt is None:
            return found
        tried.append(found)
    return max(tried, key=lambda found: len(found.supported))


class _Search:
    def __init__(self, trial: BothModels, reference: _Matchables, paddle: _Matchables) -> None:
        self._trial, self._sides = trial, (reference, paddle)
        self._tolerance = EQUAL
        self._matchables = {u.name: u for u in reference}, {u.name: u for u in paddle}

    def _seen(self, runs: tuple[Run, Run], side: int, name: str, what: str = "inputs") -> list[dict[str, Any]]:
        u = self._matchables[side][name]
        return runs[side].seen_by(u.path, what, u.part.given if u.part and what == "inputs" else None)

    def _is_hidden(self, runs: tuple[Run, Run], side: int, name: str) -> bool:
        """Whether it is part of a layer that shows nothing of what this part receives."""
        return self._matchables[side][name].part is not None and not self._seen(runs, side, name)

    def checked(self, pairs: Mapping[str, str]) -> Found:
        """Run both models with a pairing of all layers."""
        return self._judged(self._run_pairs(pairs), pairs)

    def refined(self, anchors: Mapping[str, str], apart: bool = False) -> Found:
        """Let the inputs of layers tell them apart, then check what follows.

        `apart`: what is in a branch of one name on both sides finds its partner there alone.
        """
        colours = first_colours(*self._sides, anchors)
        if apart:
            for of_side, branches in zip(colours, branches_of(*self._sides), strict=True):
                of_side.update({name: f"{colour} in {branches[name]}" for name, colour in of_side.items()})
        parted = False
        runs = None
        for _ in range(_MAXIMUM_ROUNDS):
            runs = self._trial.run([{"colours": self._shared(colours, side)} for side in (0, 1)])
            refined, left = self._refine(runs, colours)
            parted |= left
            if refined == colours:
                if not left or self._tolerance == NEARLY:
                    break
                self._tolerance = NEARLY
            colours = refined
        return self._settle(colours, runs, parted)

    def _shared(self, colours: _Colours, side: int) -> dict[str, str]:
        """Without what the other side has nothing for: a table of positions keeps what the model put there."""
        others = set(colours[1 - side].values())
        return {name: colour for name, colour in colours[side].items() if colour in others}

    def _refine(self, runs: tuple[Run, Run], colours: _Colours) -> tuple[_Colours, bool]:
        """Split every colour by its matchables' inputs; and whether some receive what no partner receives."""
        refined: _Colours = ({}, {})
        mine, other = _groups(colours[0]), _groups(colours[1])
        parted = False
        for colour, names in mine.items():
            samples: list[list[dict[str, Any]]] = []
            clusters: list[tuple[list[str], list[str]]] = []
            for side, members in enumerate((names, other.get(colour, []))):
                for name in members:
                    seen = self._seen(runs, side, name)
                    place = next(
                        (i for i, sample in enumerate(samples) if all_agree(sample, seen, self._tolerance)),
                        len(samples),
                    )
                    if place == len(samples):
                        samples.append(seen)
                        clusters.append(([], []))
                    clusters[place][side].append(name)
            equal = [cluster for cluster in clusters if len(cluster[0]) == len(cluster[1])]
            rest = [name for cluster in clusters if cluster not in equal for name in (*cluster[0], *cluster[1])]
            hidden = any(
                self._is_hidden(runs, side, name)
                for side, members in enumerate((names, other.get(colour, [])))
                for name in rest
                if name in members
            )
            parted |= bool(rest) and not hidden
            for number, cluster in enumerate(equal):
                suffix = f"{colour}/{number}" if rest or len(equal) > 1 else colour
                for side in (0, 1):
                    refined[side].update(dict.fromkeys(cluster[side], suffix))
            for side, members in enumerate((names, other.get(colour, []))):
                left = f"{colour.removesuffix(_REST)}{_REST}"
                refined[side].update({name: left for name in members if name not in refined[side]})
        refined[1].update({name: colour for name, colour in colours[1].items() if name not in refined[1]})
        return (
            {name: refined[0][name] for name in colours[0]},
            {name: refined[1][name] for name in colours[1]},
        ), parted

    def _settle(self, colours: _Colours, runs: tuple[Run, Run] | None, parted: bool) -> Found:
        """Pair what shares a colour by position; if the models then differ, try other pairs."""
        groups = _groups(colours[0]), _groups(colours[1])
        pairs = pair_by_position(*self._sides, colours, runs)
        found = self.checked(pairs)
        attempts, most = 0, _ATTEMPTS_WITHOUT_PROOF if parted else _MAXIMUM_ATTEMPTS
        for colour, names in groups[0].items():
            partners = groups[1].get(colour, [])
            if len(names) == 1 or len(names) != len(partners) or colour.endswith(_REST):
                continue
            for order in itertools.permutations(partners):
                tried = {**pairs, **dict(zip(names, order, strict=True))}
                if found.doubt is None or tried == pairs:
                    continue
                attempts += 1
                if attempts > most:
                    doubt = found.doubt if parted else AmbiguousError(_candidates(groups))
                    return dataclasses.replace(found, doubt=doubt)
                again = self.checked(tried)
                if again.doubt is None or len(again.supported) > len(found.supported):
                    pairs, found = tried, again
        return found

    def _run_pairs(self, pairs: Mapping[str, str]) -> tuple[Run, Run]:
        return self._trial.run(
            [{"colours": {name: name for name in pairs}}, {"colours": {v: k for k, v in pairs.items()}}]
        )

    def _judged(self, runs: tuple[Run, Run], pairs: Mapping[str, str]) -> Found:
        """Which layers receive the same inputs as their counterparts, and whether the models agree.

        Outputs of layers are not compared: a layer may include its activation (paddle's legacy BatchNorm does), and the
        next layer's input shows a difference anyway. Of a model's own tensor, those of the module that holds it are.
        """
        whole = {u.name for u in self._sides[0] if u.kind != RAW}

        def agree(mine: str, other: str, tolerance: float) -> bool:
            what = "inputs" if mine in whole else "outputs"
            seen = [self._seen(runs, side, name, what) for side, name in enumerate((mine, other))]
            if any(self._is_hidden(runs, side, name) for side, name in enumerate((mine, other))):
                return True
            return all_agree(seen[0], seen[1], tolerance) and (mine in whole or bool(seen[0]))

        supported = frozenset(mine for mine, other in pairs.items() if agree(mine, other, self._tolerance))
        equal = all(agree(mine, other, EQUAL) for mine, other in pairs.items() if mine in whole)
        agreed = equal and outputs_agree(runs)
        return Found(dict(pairs), supported, None if agreed else DivergedError(where_they_part(runs, *self._sides)))


def first_colours(reference: _Matchables, paddle: _Matchables, anchors: Mapping[str, str]) -> _Colours:
    """By name for anchors; else by signature alone: the registration order may differ between the sides, and weights
    are made from colours. What has no counterpart of its signature is coloured by its largest tensor.
    """
    named = anchors, {other: mine for mine, other in anchors.items()}
    open_ = [[u for u in side if u.name not in names] for side, names in zip((reference, paddle), named, strict=True)]
    counts = [Counter(u.signature for u in left) for left in open_]
    found: _Colours = ({}, {})
    for number, (side, names) in enumerate(((reference, anchors), (paddle, named[1]))):
        for u in side:
            same = counts[0][u.signature] == counts[1][u.signature]
            signature = u.signature if same else u.loose_signature
            mine = u.name if number == 0 else named[1].get(u.name, "")
            found[number][u.name] = f"pair {mine}" if u.name in names else str(signature)
    return found


def _groups(colours: Mapping[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, colour in colours.items():
        groups.setdefault(colour, []).append(name)
    return groups


def pair_by_position(
    reference: _Matchables, paddle: _Matchables, colours: _Colours, runs: tuple[Run, Run] | None = None
) -> dict[str, str]:
    """Pair the matchables of each colour: those whose tensors have as many elements first, those in branches of one
    name, frozen with frozen ones; among these in modules of the same layers; among these by the numbers in their paths
    if both sides have the same ones, or by the first of them, that of a block; then those between the same pairs and of
    the same last name first, then by order, or by the words of their names.

    The order is that of their first calls, without `runs` that of their registration: independent calls may come in any
    order. What is left where the sides have different numbers of them is not paired.
    """
    groups = _groups(colours[0]), _groups(colours[1])
    pairs = {
        names[0]: groups[1][colour][0]
        for colour, names in groups[0].items()
        if len(names) == len(groups[1].get(colour, [])) == 1
    }
    orders = [_in_order(side, runs[number] if runs else None) for number, side in enumerate((reference, paddle))]
    gaps = [_gaps(order, set(fixed)) for order, fixed in zip(orders, (pairs, pairs.values()), strict=True)]
    facts = _facts(reference, paddle, gaps, runs)
    # These tell layers apart only where both sides have as many of each.
    telling = {
        (colour, fact)
        for colour, names in groups[0].items()
        for fact in ("sizes", "branch", "trained", "module", "numbers", "block")
        if Counter(facts[0][name][fact] for name in names)
        == Counter(facts[1][name][fact] for name in groups[1].get(colour, ()))
    }
    kinds = ("branch", "trained"), ("branch",), ("trained",), ()
    of_numbers = ("numbers", "name"), ("numbers",), ("block", "name"), ("block",)
    places = (*of_numbers, ("gap", "name"), ("gap",), ("name",), ())
    groups_of_facts = itertools.product((("sizes",), ()), kinds, (("module",), ()), places)
    for wanted in (tuple(itertools.chain(*of_groups)) for of_groups in groups_of_facts):
        left: tuple[dict[Any, list[str]], dict[Any, list[str]]] = ({}, {})
        for side, (order, taken) in enumerate(zip(orders, (set(pairs), set(pairs.values())), strict=True)):
            for name in order:
                known, colour = facts[side][name], colours[side][name]
                if name in taken or any(
                    fact not in ("gap", "name") and (colour, fact) not in telling for fact in wanted
                ):
                    continue
                left[side].setdefault((colour, *(known[fact] for fact in wanted)), []).append(name)
        for key, names in left[0].items():
            if len(names) == len(left[1].get(key, [])):
                pairs |= dict(zip(names, in_order_of_names(names, left[1][key]), strict=True))
    return {name: pairs[name] for name in colours[0] if name in pairs}


def _facts(
    reference: _Matchables, paddle: _Matchables, gaps: Sequence[Mapping[str, Any]], runs: tuple[Run, Run] | None
) -> list[dict[str, dict[str, Any]]]:
    """For each side what tells its matchables apart, by their names."""
    branches, modules = branches_of(reference, paddle), [_modules(side) for side in (reference, paddle)]
    sizes = [_sizes(side, runs[number] if runs else None) for number, side in enumerate((reference, paddle))]
    return [
        {
            u.name: {
                "sizes": sizes[number][u.name],
                "branch": branches[number][u.name],
                "trained": u.is_trained,
                "module": modules[number][u.name],
                "numbers": _numbers(u.name),
                "block": _numbers(u.name)[:1],
                "gap": gaps[number][u.name],
                "name": u.name.rpartition(".")[2],
            }
            for u in side
        }
        for number, side in enumerate((reference, paddle))
    ]


def _in_order(matchables: _Matchables, run: Run | None) -> list[str]:
    first: dict[str, int] = {}
    for number, call in enumerate(run.calls if run else ()):
        first.setdefault(call["path"], number)
    return [u.name for u in sorted(matchables, key=lambda u: first.get(u.path, len(first)))]


def _sizes(matchables: _Matchables, run: Run | None) -> dict[str, tuple[int, ...]]:
    """Of each name, how many elements what its layer is given, and what it returns, have in the first call."""
    first: dict[str, tuple[int, ...]] = {}
    for call in run.calls if run else ():
        tensors = (*call["inputs"], *call["outputs"])
        first.setdefault(call["path"], tuple(math.prod(tensor["shape"]) for tensor in tensors))
    return {u.name: first.get(u.path, ()) for u in matchables}


def _modules(side: _Matchables) -> dict[str, tuple[str, ...]]:
    """Of each name, what all layers of its module are: one of the model's own parts, which may have parts itself."""
    paths = [u.name.split(".") for u in side]
    shared = next((at for at, parts in enumerate(zip(*paths, strict=False)) if len({*parts}) > 1), 0)
    held: dict[str, list[str]] = {}
    for u, path in zip(side, paths, strict=True):
        held.setdefault(path[shared], []).append(str(u.signature))
    return {u.name: tuple(sorted(held[path[shared]])) for u, path in zip(side, paths, strict=True)}


def _numbers(name: str) -> tuple[str, ...]:
    """The numbers among the parts of a path, such as which block of a list a layer is in."""
    return tuple(part for part in name.split(".") if part.isdigit())


def _gaps(order: Sequence[str], fixed: set[str]) -> dict[str, int]:
    """Of each name, how many of the `fixed` ones stand before it."""
    counts = itertools.accumulate(name in fixed for name in order)
    return dict(zip(order, counts, strict=True))


def _candidates(groups: tuple[dict[str, list[str]], dict[str, list[str]]]) -> str:
    lines = [
        f"{', '.join(names)} ↔ {', '.join(groups[1][colour])}" for colour, names in groups[0].items() if len(names) > 1
    ]
    return "more than one matching fits and none could be proven; give rename rules for: " + "; ".join(lines)
