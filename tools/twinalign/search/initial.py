"""Layers that start otherwise than the reference's, as faults with the edits that may mend them."""

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.causes.registry import Explanation
from twinalign.edits.initial_weights import edits_of_initializers, initial_edits
from twinalign.edits.proposals import Proposals
from twinalign.errors import SideCrashError
from twinalign.recorder.recorder import Recorder
from twinalign.recorder.recording_plan import PlannedRecording
from twinalign.replay.construction_places import port_places
from twinalign.replay.mended_constants import values_in_construction
from twinalign.replay.mended_initial import initial_mended
from twinalign.search.components import ComponentContext, Mended
from twinalign.search.faults import Fault
from twinalign.sides import INITIAL, SIDES
from twinalign.verdict.initial_weights import CAUSES, InitialDifference, compare_initial
from twinalign.verdict.stage_recordings import StageRecordings

_SECONDS = 20.0
"""For the lines of the port that are why."""


def locate_initial(recorder: Recorder, weights: Mapping[str, Mapping[str, Any]], explain: bool = True) -> list[Fault]:
    """One fault for each layer that starts otherwise; its phase is `initial`. `recorder` is running.

    `explain`: whether the lines of the port that are why are sought.
    """
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
    faults = [_fault(layer, found, places, proposals) for layer, found in layers.items()]
    return _with_lines(recorder, weights, list(layers.values()), faults) if explain else faults


def _with_lines(
    recorder: Recorder,
    weights: Mapping[str, Mapping[str, Any]],
    layers: Sequence[Sequence[InitialDifference]],
    faults: list[Fault],
) -> list[Fault]:
    """The faults with the edits of the port with which it starts as the reference does, as far as they are found."""
    of_port = weights.get(recorder.description["parts"][INITIAL], {}).get("paddle", {})
    (folder := recorder.out / "locate").mkdir(exist_ok=True)
    context = ComponentContext(recorder.processes, folder, (INITIAL,))
    left = min(_SECONDS, recorder.settings.explain_seconds)
    for fault, found in zip(faults, layers, strict=True):
        if left > 0.0:
            begun = time.monotonic()
            given = {
                "weights": of_port,
                "reference": str(recorder.recording_path("ref", INITIAL, "float32")),
                "names": {one.name: one.port_name for one in found},
            }
            mended = Mended(
                initial_mended,
                fault.reference_layer,
                given,
                INITIAL,
                values=values_in_construction,
                values_given={"stage": INITIAL},
            )
            fault.explanation = context.with_edit(fault.explanation, mended, left / 2)
            left -= time.monotonic() - begun
    return faults


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
    if not causes:
        fault.note(f"starts from {text}")
    fault.edit, fault.further_edits, fault.reference_edits = (edits[0] if edits else None), edits[1:], tried
    fault.suggestion = f"let {layer or 'the model'} start from {written}" if written else ""
    return fault
