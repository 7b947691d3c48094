"""What each side's process is asked while faults are located; every function is called through `Worker.call`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case import Case
from twinalign.locate.calls import LOSS, Call, full_name
from twinalign.locate.gradients import ForcedBackward
from twinalign.locate.measuring import difference
from twinalign.locate.naming import PathNames
from twinalign.locate.port import ForcedForward, Unit, own_forward
from twinalign.locate.reference import ReferencePass
from twinalign.locate.running import CaseRun
from twinalign.locate.scenes import PERTURBATION, UnitScene, phase_of
from twinalign.locate.store import TensorStore
from twinalign.locate.tracing import narrowed_down
from twinalign.recording import save_npz
from twinalign.verdict.allowances import ALWAYS, resolve
from twinalign.verdict.float32_constants import bound_of_classes

_KEY = "locate"

FLOOR_FACTOR = 16.0
"""A difference counts from this many times what the perturbation does to the reference."""
LARGEST_OF_CONSTANTS = 1e-5
"""Relative differences above this are not tried to be explained by constants that are kept in float32."""


def reference_forward(worker: Any, stage: str, weights: Mapping[str, Any], folder: str, dtype: str) -> dict[str, Any]:
    """Run the reference forward; its values lie in `folder` afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    run = CaseRun.of(worker, stage, weights, dtype)
    found = ReferencePass(run, Path(folder) / "reference")
    worker.kept[_KEY] = found
    return found.forward()


def reference_backward(worker: Any, gradients: str | None) -> dict[str, Any]:
    """Run the reference backward; the gradients of its parameters go to the .npz file `gradients`, if one is given."""
    found: dict[str, Any] = worker.kept[_KEY].backward(Path(gradients) if gradients else None)
    return found


def port_own(
    worker: Any,
    stage: str,
    weights: Mapping[str, Any],
    folder: str,
    dtype: str,
    calls: Sequence[dict],
    rename: Mapping[str, str],
) -> dict[str, Any]:
    """Run the port as it is, and measure how far each layer's output is from the reference's."""
    run = CaseRun.of(worker, stage, weights, dtype)
    names = PathNames(rename, run.canonical)
    found = own_forward(run, [Call.from_json(call) for call in calls], names.reference_path)
    return {"calls": [call.to_json() for call in found], "names": {c.path: names.reference_path(c.path) for c in found}}


def port_forced_forward(
    worker: Any,
    stage: str,
    weights: Mapping[str, Any],
    folder: str,
    dtype: str,
    calls: Sequence[dict],
    pairs: Sequence[Sequence[Any]],
) -> dict[str, Any]:
    """Force the reference's values on the port's layers; `pairs` are port path, ordinal and number of the partner."""
    run = CaseRun.of(worker, stage, weights, dtype)
    values = Path(folder) / "reference"
    store = TensorStore(values / "values")
    by_number = {call["number"]: Call.from_json(call) for call in calls}
    partners = {(path, ordinal): by_number[number] for path, ordinal, number in pairs}
    forced = ForcedForward(
        run,
        store,
        TensorStore(values / "state"),
        partners,
        lambda layer: bound_of_classes(_classes(worker.backend, layer)),
    )
    forced()
    worker.kept[_KEY] = (run, store, forced.units)
    return {}


def port_forced_backward(
    worker: Any,
    folder: str,
    gradients: Mapping[str, tuple[int, float]],
    parameters: Mapping[str, tuple[list[int], float, list[float]]],
) -> dict[str, Any]:
    """Judge the gradients; returns every unit that differs anywhere, with its values in `folder`."""
    run, store, units = worker.kept.pop(_KEY)
    ForcedBackward(run, store, gradients, parameters, Path(folder))(units)
    return {"suspects": [_reported(worker, unit, Path(folder)) for unit in units if unit.differences]}


def _reported(worker: Any, unit: Unit, folder: Path) -> dict[str, Any]:
    stem = folder / str(unit.call.number)
    save_npz(stem.with_name(f"{stem.name}_port.npz"), unit.port)
    save_npz(stem.with_name(f"{stem.name}_reference.npz"), unit.reference)
    return {
        "call": unit.call.number,
        "path": unit.path,
        "layer": full_name(type(unit.layer)) if unit.layer is not None else unit.path,
        "children": [child.call.number for child in unit.children],
        "differences": {name: found.to_json() for name, found in unit.differences.items()},
        "notes": unit.notes,
        "steps": [step.to_json() for step in unit.steps] if _in_forward(unit.differences) else [],
        "facts": facts_of(unit.layer),
    }


def _in_forward(differences: Iterable[str]) -> bool:
    return any(phase_of(name) == "forward" for name in differences)


def facts_of(layer: Any) -> dict[str, Any]:
    """What a layer says of itself: its settings by name, its own short description, the parameters that it holds."""
    if layer is None:
        return {}
    simple = (bool, int, float, str)
    facts: dict[str, Any] = {}
    for name, value in vars(layer).items():
        plain: Any = value if isinstance(value, simple) else None
        if isinstance(value, (list, tuple)) and all(isinstance(item, simple) for item in value):
            plain = list(value)
        if plain is not None and name not in ("training", "_full_name", "_helper"):
            facts[name.lstrip("_")] = plain
    try:
        facts["extra_repr"] = " ".join(str(layer.extra_repr()).split())
    except Exception:  # a user's layer may describe itself in any way it likes
        facts["extra_repr"] = ""
    return facts


def _classes(backend: Any, layer: Any) -> list[str]:
    return [] if layer is None else [full_name(type(inner)) for inner in backend.all_layers(layer)]


def plain_pass(worker: Any, stage: str, weights: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """One forward and backward pass and nothing else, to measure the others against; returns its seconds."""
    run = CaseRun.of(worker, stage, weights, dtype)
    with worker.backend.default_dtype(dtype):
        inputs = run.inputs()
        started = time.perf_counter()
        outputs = run.case.forward(run.model, inputs, run.framework)
        worker.backend.backward(run.total_loss(outputs, inputs))
    return {"seconds": time.perf_counter() - started}


def reference_confirm(worker: Any, folder: str, suspects: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Measure what rounding does to each suspect; returns, for each, the phases in which it is more than that.

    Where a suspect's own code is wrong in the forward pass, `inside` says between which of its lines that begins.
    """
    reference = _back_at_the_start(worker)
    answers = [
        _phases_beyond_rounding(reference, report, Path(folder), _allowed(worker.case, report["path"]))
        for report in suspects
    ]
    inside = [
        narrowed_down(report["steps"], UnitScene(reference, report, Path(folder), "forward").intermediates())
        if "forward" in phases and report["steps"]
        else None
        for report, (phases, _) in zip(suspects, answers, strict=True)
    ]
    return {
        "phases": [phases for phases, _ in answers],
        "differences": [values for _, values in answers],
        "inside": inside,
    }


def reference_explain(worker: Any, folder: str, suspect: Mapping[str, Any], phase: str) -> dict[str, Any]:
    """Look for the cause of one suspect in one phase by trying every hypothesis on the reference."""
    from twinalign.explain.layers import explain

    found = explain(UnitScene(worker.kept[_KEY], suspect, Path(folder), phase))
    return {"explanation": found.to_json() if found is not None else None}


def _back_at_the_start(worker: Any) -> ReferencePass:
    """The reference's pass, its model with the weights that it began with."""
    found: ReferencePass = worker.kept[_KEY]
    if found.moved:
        found.run.reset(worker)
    return found


def _phases_beyond_rounding(
    reference: ReferencePass, report: Mapping[str, Any], folder: Path, allowed: float
) -> tuple[list[str], dict[str, Any]]:
    """Phases in which the unit is wrong, and its differences, measured in full where only projections were at hand."""
    phases, measured = [], dict(report["differences"])
    for phase in ("forward", "state", "backward"):
        apart = {name: found for name, found in report["differences"].items() if phase_of(name) == phase}
        if not apart:
            continue
        scene = UnitScene(reference, report, folder, phase)
        if _beyond_rounding(scene, apart, allowed):
            phases.append(phase)
            for name in (n for n in apart if n.startswith("gradient.parameter.") and n in scene.reference):
                measured[name] = difference(scene.port[name], scene.reference[name]).to_json()
    return phases, measured


def _allowed(case: Case, path: str) -> float:
    """Greatest relative difference of a unit that the case's own allowances explain in float64."""
    name = "loss" if path == LOSS else "output"
    named = [allowance for allowance in resolve(case.allowances) if allowance.id not in ALWAYS]
    return max((allowance.bound for allowance in named if allowance.covers(name)), default=0.0)


def _beyond_rounding(scene: UnitScene, apart: Mapping[str, Mapping[str, Any]], allowed: float) -> bool:
    """Whether any of these differences is more than rounding, than epsilons kept in float32, or what is allowed."""
    # Without a floor (other shapes, NaN on one side) a difference speaks for itself.
    if any(found["text"] or name not in scene.port for name, found in apart.items()):
        return True
    noise = scene.run(perturbation=PERTURBATION)
    if any(name not in noise for name in apart):
        return True
    floors = {
        name: max(
            FLOOR_FACTOR * difference(noise[name], scene.reference[name]).rms, allowed * (found["reference_rms"] or 0.0)
        )
        for name, found in apart.items()
    }
    if all(found["rms"] <= floors[name] for name, found in apart.items()):
        return False
    if max(found["rms"] / (found["reference_rms"] or np.inf) for found in apart.values()) > LARGEST_OF_CONSTANTS:
        return True
    with scene.constants_in_float32():
        rounded = scene.run()
    return any(difference(scene.port[name], rounded[name]).rms > floors[name] for name in apart)
