"""Locates the faults of two attached trainers: in their loops, in the layers of their models, in their optimizers."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.attached.model_as_case import AttachedModel, AttachedTrainedModel, first_call
from twinalign.causes.registry import Explanation
from twinalign.errors import InputError
from twinalign.files.attached_recordings import AttachedRecording, is_attached, ranks_of
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.search.faults import Fault
from twinalign.search.locator import LocateResult, Locator
from twinalign.sides import SIDES
from twinalign.verdict.attached_comparison import compare_attached

LOOP = "trainer"
"""The place of faults in a trainer's loop."""
_NOT_IN_FLOAT64 = ("half_precision_weights", "step_skipped")
"""Causes of wrong updates that an optimizer alone, in float64, cannot show."""
_FOUND_BY_LAYER = ("model", "bn_running_var_biased")
"""Causes of the model, which the search of its layers says more of."""


def locate_attached(
    reference: Path,
    port: Path,
    settings: RunSettings,
    progress: Callable[[str, str], None] = lambda side, text: None,
    explain: bool = True,
) -> LocateResult:
    """Find the faults of two recorded trainers, with their causes.

    What the loops do is judged by the recordings. Each layer runs alone on the reference's recorded batch, and the
    optimizers on its recorded gradients: the scripts are run again for their models, with the interpreters that
    recorded them unless `settings.pythons` names others.

    Raises:
        InputError: a folder holds no recording, or its script cannot be run again.
        SideCrashError: the process of a side died, or the script raised.
    """
    for folder in (reference, port):
        if not is_attached(folder):
            raise InputError(f"{folder}: no recording of an attached trainer; record it with twinalign.attach")
    compared = compare_attached(reference, port).attached or {}
    recordings = [AttachedRecording.load(ranks_of(folder)[0].resolve()) for folder in (reference, port)]
    frameworks = [recording.about["framework"] for recording in recordings]
    if frameworks != ["torch", "paddle"]:
        raise InputError(
            f"{reference} and {port}: recorded by {' and '.join(frameworks)}; locate needs a recording by torch "
            "first, the reference's, and the port's by paddle"
        )
    result = LocateResult(f"{reference} and {port}", _of_the_loop(compared["causes"]))
    for name in recordings[0].about["layouts"]:
        if first_call(recordings[0], name) is not None:
            _add(result, name, _search_model(recordings, name, settings, progress, explain))
        elif any(call["model"] == name for step in recordings[0].steps for call in recordings[0].facts(step)["calls"]):
            result.not_searched[name or "model"] = "the trainer calls parts of it, and never the whole"
    return result


def _of_the_loop(causes: list[dict[str, Any]]) -> list[Fault]:
    found = []
    for cause in causes:
        if cause["id"] not in _FOUND_BY_LAYER:
            text = f"{cause['text']}; from step {cause['step']} on"
            explanation = Explanation(cause["id"], text, True, cause["evidence"])
            evidence: dict[str, Any] = {name: cause[name] for name in ("step", "quantity", "rank") if name in cause}
            found.append(Fault(LOOP, LOOP, "train", explanation, evidence))
    return found


def _search_model(
    recordings: list[AttachedRecording],
    name: str,
    settings: RunSettings,
    progress: Callable[[str, str], None],
    explain: bool,
) -> LocateResult:
    gradients = _gradients(recordings[0], name)
    kind = AttachedTrainedModel if gradients else AttachedModel
    given = {"reference_recording": recordings[0], "port_recording": recordings[1]}
    own = dataclasses.replace(
        settings,
        case=f"{kind.__module__}:{kind.__qualname__}",
        out=settings.out / "attached" / name,
        options={**{option: str(one.folder) for option, one in given.items()}, "model": name},
        pythons={
            side: settings.pythons.get(side) or (one.about.get("started") or {}).get("python")
            for side, one in zip(SIDES, recordings, strict=True)
        },
        sequential=True,
        fresh=True,
    )
    recorder = Recorder(own, progress)
    with recorder.running() as weights:
        return Locator(recorder, weights, progress, gradients or None).locate(explain=explain)


def _gradients(recording: AttachedRecording, name: str) -> Mapping[str, np.ndarray]:
    """What the optimizer of a model received in the first recorded step that updates it; empty if none does."""
    prefix = f"gradient.{name}:" if name else "gradient."
    for step in recording.steps:
        arrays = recording.arrays(step)
        if found := {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}:
            return found
    return {}


def _add(result: LocateResult, name: str, found: LocateResult) -> None:
    """Add what was found in one model, under its name; what loop and optimizer both show of the optimizer, once."""
    prefix = f"{name}:" if name else ""
    of_optimizer = [fault for fault in result.faults if _is_of_optimizer(fault)]
    for fault in found.faults:
        if fault.phase == "optimizer" and of_optimizer:
            if fault.explanation is None:
                continue
            result.faults = [one for one in result.faults if one not in of_optimizer]
        fault.reference_layer, fault.paddle_layer = prefix + fault.reference_layer, prefix + fault.paddle_layer
        result.faults.append(fault)
    result.layers |= {prefix + part: layers for part, layers in found.layers.items()}
    result.not_searched |= {prefix + part: reason for part, reason in found.not_searched.items()}
    result.crashes |= {prefix + part: crash for part, crash in found.crashes.items()}


def _is_of_optimizer(fault: Fault) -> bool:
    explanation = fault.explanation
    wrong = fault.phase == "train" and fault.evidence["quantity"] == "updated"
    return wrong and explanation is not None and explanation.id not in _NOT_IN_FLOAT64
