"""Layers that start otherwise than the reference's, as faults with the edits that may mend them."""

from collections.abc import Callable, Mapping
from typing import Any

from twinalign.edits.initial_weights import initial_edits
from twinalign.edits.proposals import Proposals
from twinalign.errors import SideCrashError
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.replay.construction_places import port_places
from twinalign.sides import INITIAL
from twinalign.verdict.initial_weights import CAUSES, InitialDifference, InitialWeights


def initial_faults(
    initial: InitialWeights,
    settings: RunSettings,
    progress: Callable[[str, str], None],
    kept: KeptProcesses,
) -> list[dict[str, Any]]:
    """One fault for each layer that starts otherwise, in the form of `Fault.to_json`; its phase is `initial`."""
    layers: dict[str, list[InitialDifference]] = {}
    for one in initial.differences:
        layers.setdefault(one.port_name.rpartition(".")[0], []).append(one)
    places = _places(settings, progress, kept, layers)
    proposals = Proposals(places, {}, settings.sources)
    return [_fault(layer, found, places, proposals) for layer, found in layers.items()]


def _places(
    settings: RunSettings,
    progress: Callable[[str, str], None],
    kept: KeptProcesses,
    layers: Mapping[str, list[InitialDifference]],
) -> dict[str, Any]:
    functions = dict.fromkeys(f"nn.{found[0].layer}" for found in layers.values())
    recorder = Recorder(settings, progress, kept)
    try:
        with recorder.started(["paddle"]) as processes:
            asked = {"stage": "forward", "paths": list(layers), "functions": list(functions)}
            return dict(processes["paddle"].call(port_places, **asked))
    except SideCrashError:  # the faults stand without a proposal
        return {"layers": {}, "parameters": {}}


def _fault(
    layer: str, found: list[InitialDifference], places: Mapping[str, Any], proposals: Proposals
) -> dict[str, Any]:
    causes = dict.fromkeys(one.cause for one in found if one.cause)
    text = "; ".join(dict.fromkeys(f"{one.reference} in the reference, {one.port} in the port" for one in found))
    known = {"id": "+".join(causes), "text": f"{'; '.join(CAUSES[cause] for cause in causes)}: {text}", "evidence": {}}
    remedies = {one.port_name.rpartition(".")[2]: one.remedy for one in found if one.remedy}
    place = places["layers"].get(layer)
    edits: list[dict[str, Any]] = []
    if place is not None and remedies:
        parameters = places["parameters"].get(f"nn.{found[0].layer}", [])
        proposed = initial_edits(remedies, place, parameters, proposals.sources_of(place))
        edits = [edit.to_json() for edit in proposals.readable(proposed)]
    written = "; ".join(f"{leaf}: {remedy}" for leaf, remedy in remedies.items())
    return {
        "reference_layer": found[0].name.rpartition(".")[0],
        "paddle_layer": layer,
        "phase": INITIAL,
        "explanation": known if causes else None,
        "evidence": {"paddle_class": found[0].layer, "source": proposals.source_of({"paddle_layer": layer})},
        "edit": edits[0] if edits else None,
        "further_edits": edits[1:],
        "reference_edits": [],
        "case_edits": [],
        "suggestion": f"let {layer or 'the model'} start from {written}" if written else "",
    }
