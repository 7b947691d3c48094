"""Layers that start otherwise than the reference's, as faults with the edits that may mend them."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.causes.registry import Explanation
from twinalign.edits.initial_weights import edits_of_initializers, initial_edits
from twinalign.edits.proposals import Proposals
from twinalign.errors import SideCrashError
from twinalign.recorder.recorder import Recorder
from twinalign.recorder.recording_plan import PlannedRecording
from twinalign.replay.construction_places import port_places
from twinalign.search.faults import Fault
from twinalign.sides import INITIAL, SIDES
from twinalign.verdict.initial_weights import CAUSES, InitialDifference, compare_initial
from twinalign.verdict.stage_recordings import StageRecordings


def locate_initial(recorder: Recorder, weights: Mapping[str, Mapping[str, Any]]) -> list[Fault]:
    """One fault for each layer that starts otherwise; its phase is `initial`. `recorder` is running."""
    for side, dtype in itertools.product(SIDES, recorder.dtypes_of(INITIAL)):
        recorder.make(PlannedRecording(side, INITIAL, dtype, recorder.recording_path(side, INITIAL, dtype)), weights)
    layers: dict[str, list[InitialDifference]] = {}
    for one in compare_initial(StageRecordings.load(recorder, INITIAL)).differences:
        layers.setdefault(one.port_name.rpartition(".")[0], []).append(one)
    functions = list(dict.fromkeys(f"nn.{found[0].layer}" for found in layers.values()))
    asked = {"stage": "forward", "paths": list(layers), "functions": functions}
    try:
        places = recorder.processes["paddle"].call(port_places, **asked)
    except SideCrashError:  # the faults stand without a proposal
        places = {"layers": {}, "parameters": {}}
    proposals = Proposals(places, {}, recorder.settings.sources)
    return [_fault(layer, found, places, proposals) for layer, found in layers.items()]


def _fault(layer: str, found: Sequence[InitialDifference], places: Mapping[str, Any], proposals: Proposals) -> Fault:
    causes = dict.fromkeys(one.cause for one in found if one.cause)
    text = "; ".join(dict.fromkeys(f"{one.reference} in the reference, {one.port} in the port" for one in found))
    known = Explanation("+".join(causes), f"{'; '.join(CAUSES[cause] for cause in causes)}: {text}")
    remedies = {one.port_name.rpartition(".")[2]: one.remedy for one in found if one.remedy}
    place = places["layers"].get(layer)
    edits: list[dict[str, Any]] = []
    tried: list[dict[str, Any]] = []
    if place is not None and remedies:
        sources, parameters = proposals.sources_of(place), places["parameters"].get(f"nn.{found[0].layer}", [])
        edits, tried = (
            [edit.to_json() for edit in proposals.readable(some)]
            for some in (
                initial_edits(remedies, place, parameters, sources),
                edits_of_initializers(remedies, place, sources),
            )
        )
    written = "; ".join(f"{leaf}: {remedy}" for leaf, remedy in remedies.items())
    evidence = {"paddle_class": found[0].layer, "source": proposals.source_of({"paddle_layer": layer})}
    fault = Fault(found[0].name.rpartition(".")[0], layer, INITIAL, known if causes else None, evidence)
    fault.edit, fault.further_edits, fault.reference_edits = (edits[0] if edits else None), edits[1:], tried
    fault.suggestion = f"let {layer or 'the model'} start from {written}" if written else ""
    return fault
