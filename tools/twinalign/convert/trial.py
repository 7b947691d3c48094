"""Alignment by trial: find which layer is which by running both models, whatever their names and order.

All layers of one colour (at first: one kind and one set of shapes) get the same weights in both frameworks. Where two
of them receive different inputs they part, and each finds its partner by that input; then everything is run again with
the finer colours, until nothing parts any more. What is left together is in symmetric places and is tried pair by pair.
This is colour refinement with individualisation, as for graph isomorphism, on numbers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.convert.fingerprints import agree, all_agree
from twinalign.convert.layer_settings import differing_settings
from twinalign.convert.process import ModelProcess
from twinalign.convert.units import Unit
from twinalign.errors import ExitCode, TwinalignError

_MAXIMUM_ROUNDS = 12
_MAXIMUM_ATTEMPTS = 200


class DivergedError(TwinalignError):
    """The two models compute different things: the message says where they part."""

    exit_code = ExitCode.DIVERGED


class AmbiguousError(TwinalignError):
    """More than one assignment fits and none could be proven."""


@dataclasses.dataclass
class Run:
    """What one run of one model showed."""

    calls: list[dict[str, Any]]
    outputs: list[np.ndarray]

    def seen_by(self, path: str) -> list[dict[str, Any]]:
        """Fingerprints of the inputs of every call of the layer."""
        return [given for call in self.calls if call["path"] == path for given in call["inputs"]]

    def returned_by(self, path: str) -> list[dict[str, Any]]:
        """Fingerprints of the outputs of every call of the layer."""
        return [given for call in self.calls if call["path"] == path for given in call["outputs"]]


class Trial:
    """Runs both models on one input, side by side."""

    def __init__(self, reference: ModelProcess, paddle: ModelProcess, inputs: Mapping[str, np.ndarray]) -> None:
        """`inputs` are given to both models by position; floating-point ones in float64."""
        self.processes = (reference, paddle)
        self.inputs = [process.save(inputs) for process in self.processes]
        self.shapes = [tuple(array.shape) for array in inputs.values()]

    def run(self, requests: Sequence[Mapping[str, Any]]) -> tuple[Run, Run]:
        """Run both models at the same time; a request has `colours` or `weights`."""
        outputs = [str(process.folder / "outputs.npz") for process in self.processes]
        for process, request, given, returned in zip(self.processes, requests, self.inputs, outputs, strict=True):
            process.send("run", inputs=given, outputs=returned, **request)
        runs = []
        for process, returned in zip(self.processes, outputs, strict=True):
            calls = process.result()["calls"]
            with np.load(returned, allow_pickle=False) as arrays:
                runs.append(Run(calls, list(arrays.values())))
        return runs[0], runs[1]


def align_by_trial(trial: Trial, reference: Sequence[Unit], paddle: Sequence[Unit]) -> dict[str, str]:
    """`{reference unit: paddle unit}` for models whose units have the same signatures.

    Raises DivergedError where the models part whatever the assignment, AmbiguousError where too many are left to try.
    """
    if [unit.signature for unit in reference] == [unit.signature for unit in paddle]:
        # Both list the same kinds and shapes in the same order: most likely that is the assignment, and one run tells.
        in_order = {mine.name: other.name for mine, other in zip(reference, paddle, strict=True)}
        if _pairs_agree(_run_pairs(trial, in_order), in_order, reference, paddle):
            return in_order
    colours = _first_colours(reference), _first_colours(paddle)
    for _ in range(_MAXIMUM_ROUNDS):
        runs = trial.run([{"colours": colouring} for colouring in colours])
        refined = _refine(runs, colours, reference, paddle)
        if refined == colours:
            break
        colours = refined
    return _settle(trial, colours, reference, paddle)


def _first_colours(units: Sequence[Unit]) -> dict[str, str]:
    """By signature alone: the order of registration may differ between the sides, and the weights come from colours."""
    return {unit.name: str(unit.signature) for unit in units}


def _groups(colours: Mapping[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, colour in colours.items():
        groups.setdefault(colour, []).append(name)
    return groups


def _refine(
    runs: tuple[Run, Run],
    colours: tuple[dict[str, str], dict[str, str]],
    reference: Sequence[Unit],
    paddle: Sequence[Unit],
) -> tuple[dict[str, str], dict[str, str]]:
    """Split every colour by what its units were given; raises DivergedError where a unit finds no partner."""
    paths = {u.name: u.path for u in reference}, {u.name: u.path for u in paddle}
    refined: tuple[dict[str, str], dict[str, str]] = ({}, {})
    mine, other = _groups(colours[0]), _groups(colours[1])
    orphans: list[str] = []
    for colour, names in mine.items():
        clusters: list[list[str]] = []
        samples: list[list[dict[str, Any]]] = []
        for name in names:
            seen = runs[0].seen_by(paths[0][name])
            place = next((i for i, sample in enumerate(samples) if all_agree(sample, seen)), len(samples))
            if place == len(samples):
                samples.append(seen)
                clusters.append([])
            clusters[place].append(name)
        partners: list[list[str]] = [[] for _ in clusters]
        for name in other.get(colour, []):
            seen = runs[1].seen_by(paths[1][name])
            place = next((i for i, sample in enumerate(samples) if all_agree(sample, seen)), -1)
            if place >= 0:
                partners[place].append(name)
        for number, (left, right) in enumerate(zip(clusters, partners, strict=True)):
            if len(left) != len(right):
                orphans += left
            suffix = f"{colour}/{number}" if len(clusters) > 1 else colour
            refined[0].update(dict.fromkeys(left, suffix))
            refined[1].update(dict.fromkeys(right, suffix))
    if orphans:
        raise DivergedError(where_they_part(runs, reference, paddle))
    order = [u.name for u in reference], [u.name for u in paddle]
    return ({name: refined[0][name] for name in order[0]}, {name: refined[1][name] for name in order[1]})


def _settle(
    trial: Trial, colours: tuple[dict[str, str], dict[str, str]], reference: Sequence[Unit], paddle: Sequence[Unit]
) -> dict[str, str]:
    """Give every unit a colour of its own, pairs in order first, and try the other pairings where that does not do."""
    groups = _groups(colours[0]), _groups(colours[1])
    pairs = {name: groups[1][colour][i] for colour, names in groups[0].items() for i, name in enumerate(names)}
    runs = _run_pairs(trial, pairs)
    if _pairs_agree(runs, pairs, reference, paddle):
        return pairs
    attempts = 0
    for colour, names in groups[0].items():
        if len(names) == 1:
            continue
        best = _score(runs, pairs, reference, paddle)
        for order in itertools.permutations(groups[1][colour]):
            attempts += 1
            if attempts > _MAXIMUM_ATTEMPTS:
                raise AmbiguousError(_candidates(groups))
            tried = {**pairs, **dict(zip(names, order, strict=True))}
            if tried == pairs:
                continue
            found = _run_pairs(trial, tried)
            if _pairs_agree(found, tried, reference, paddle):
                return tried
            if (score := _score(found, tried, reference, paddle)) > best:
                pairs, runs, best = tried, found, score
    raise DivergedError(where_they_part(runs, reference, paddle))


def _run_pairs(trial: Trial, pairs: Mapping[str, str]) -> tuple[Run, Run]:
    return trial.run([{"colours": {name: name for name in pairs}}, {"colours": {v: k for k, v in pairs.items()}}])


def _score(runs: tuple[Run, Run], pairs: Mapping[str, str], reference: Sequence[Unit], paddle: Sequence[Unit]) -> int:
    """How many units are given the same as their partners.

    What they return is not asked: a layer may have its activation built in (paddle's legacy BatchNorm has), and the
    next one's input tells anyway.
    """
    paths = {u.name: u.path for u in reference}, {u.name: u.path for u in paddle}
    return sum(
        all_agree(runs[0].seen_by(paths[0][mine]), runs[1].seen_by(paths[1][other])) for mine, other in pairs.items()
    )


def _pairs_agree(
    runs: tuple[Run, Run], pairs: Mapping[str, str], reference: Sequence[Unit], paddle: Sequence[Unit]
) -> bool:
    whole = {u.name for u in reference if u.kind != "raw"}
    kept = {mine: other for mine, other in pairs.items() if mine in whole}
    return _score(runs, kept, reference, paddle) == len(kept) and outputs_agree(runs)


def outputs_agree(runs: tuple[Run, Run]) -> bool:
    """Whether what both models return agrees; a side may return more (auxiliary heads), never something else."""
    from twinalign.convert.fingerprints import fingerprint

    pairs = list(zip(runs[0].outputs, runs[1].outputs, strict=False))
    return bool(pairs) and all(agree(fingerprint(a), fingerprint(b)) for a, b in pairs)


def _candidates(groups: tuple[dict[str, list[str]], dict[str, list[str]]]) -> str:
    lines = [
        f"{', '.join(names)} ↔ {', '.join(groups[1][colour])}" for colour, names in groups[0].items() if len(names) > 1
    ]
    return "more than one assignment fits and none could be proven; give rename rules for: " + "; ".join(lines)


def where_they_part(runs: tuple[Run, Run], reference: Sequence[Unit], paddle: Sequence[Unit]) -> str:
    """In words: the first layer, in the reference's order, that is given something else than any layer of paddle's,
    and what either model runs since the last layer that both agree on."""
    mine, theirs = _leaves(runs[0].calls, reference), _leaves(runs[1].calls, paddle)
    weighted = {unit.path for unit in reference}, {unit.path for unit in paddle}
    before, start = -1, -1
    for place, call in enumerate(mine):
        if call["path"] not in weighted[0]:
            continue
        partners = [
            (not all_agree(call["outputs"], other["outputs"]), i)
            for i, other in enumerate(theirs)
            if other["path"] in weighted[1] and all_agree(call["inputs"], other["inputs"])
        ]
        if not partners:
            return (
                f"the two models compute different things: {_between(mine, theirs, before, place, start, weighted[1])}"
            )
        # Of several that are given the same, the one that returns the same is meant.
        before, start = place, min(partners)[1]
    return f"the two models compute different things: {_between(mine, theirs, before, len(mine), start, weighted[1])}"


def _between(
    mine: Sequence[dict[str, Any]],
    theirs: Sequence[dict[str, Any]],
    before: int,
    place: int,
    start: int,
    weighted: set[str],
) -> str:
    since = f"from {mine[before]['path']!r} (paddle: {theirs[start]['path']!r}) on" if before >= 0 else "from the start"
    stop = next((i for i in range(start + 1, len(theirs)) if theirs[i]["path"] in weighted), len(theirs))
    steps = mine[max(before, 0) : place + 1], theirs[max(start, 0) : stop + 1]
    differing = differing_settings(*steps)
    named = f"they differ in {', '.join(differing)}: " if differing else ""
    return f"{named}{since} the reference runs {_shown(steps[0])}; paddle runs {_shown(steps[1])}"


def _shown(calls: Sequence[Mapping[str, Any]]) -> str:
    names = [f"{call['path']} {call['layer']} on {_shapes(call['inputs'])}" for call in calls[:6]]
    return ", ".join(names) or "no further layer"


def _leaves(calls: Sequence[dict[str, Any]], units: Sequence[Unit]) -> list[dict[str, Any]]:
    """Calls of the units and of layers that have no layers below them, in order."""
    kept = {unit.path for unit in units if unit.path}
    paths = {call["path"] for call in calls}
    inner = {path[:i] for path in paths for i, character in enumerate(path) if character == "."} | {""}
    inside = tuple(f"{path}." for path in kept)
    return [
        call
        for call in calls
        if call["path"] in kept or (call["path"] not in inner and not call["path"].startswith(inside))
    ]


def _shapes(fingerprints: Sequence[Mapping[str, Any]]) -> str:
    return " and ".join("×".join(map(str, given["shape"])) for given in fingerprints) or "nothing"
