"""Is the metric wrong? It is judged on the reference's outputs and labels, so that a wrong model does not count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.explain.metric import floor_of
from twinalign.locate.components import ComponentContext, distance, explanation_of
from twinalign.locate.faults import Fault
from twinalign.locate.metric_values import STAGE

if TYPE_CHECKING:
    from twinalign.recorder.process import RecorderProcess

METRIC = "metric"
_RESULT = "result."
_VARIATIONS = 3


def locate_metric(processes: Mapping[str, RecorderProcess], context: ComponentContext) -> list[Fault]:
    """The fault of the metric (component `metric`), if there is one.

    Of an evaluation as a whole (`Case.evaluate`) the arrays that it returns tell whether the model already differs;
    then numbers that follow from them are not counted against the metric, unless a cause within it is proven.

    Args:
        processes: both recorder processes, started.
        context: with the weights of the metric stage.
    """
    if STAGE not in context.stages or STAGE not in context.weights:
        return []
    weights = context.weights[STAGE]
    paths = {side: context.folder / f"metric_{side}.npz" for side in processes}
    isolated, results = _record(processes, weights, paths)
    wrong = differing(results["ref"], results["paddle"])
    if wrong and not isolated and context.explain:
        # One accuracy or two prove little: the same of other models is asked for.
        _, results = _record(processes, weights, paths, _VARIATIONS)
        wrong = differing(results["ref"], results["paddle"])
    faults = []
    if wrong:
        explanation = None
        if context.explain:
            explanation = explanation_of(
                processes["ref"],
                "twinalign.explain.metric:explain_metric",
                weights=weights["ref"],
                reference=str(paths["ref"]),
                port=str(paths["paddle"]),
            )
        inherited = not isolated and any(results["ref"].get(name, np.zeros(0)).ndim > 0 for name in wrong)
        if explanation is not None or not inherited:
            faults.append(Fault(METRIC, METRIC, "metric", explanation, _evidence(wrong, results, isolated)))
    for path in paths.values():
        path.unlink(missing_ok=True)
    return faults


def _record(
    processes: Mapping[str, RecorderProcess], weights: Mapping[str, Any], paths: Mapping[str, Path], variations: int = 0
) -> tuple[bool, dict[str, dict[str, np.ndarray]]]:
    """Both sides' numbers by name, and whether the port's are those of the reference's outputs."""
    isolated, results = True, {}
    for side in ("ref", "paddle"):
        answer = processes[side].request(
            "call",
            function="twinalign.locate.metric_values:record_metric",
            weights=weights[side],
            path=str(paths[side]),
            given=str(paths["ref"]) if side == "paddle" else None,
            variations=variations,
        )
        isolated = bool(answer["isolated"])
        with np.load(paths[side], allow_pickle=False) as stored:
            results[side] = {k.removeprefix(_RESULT): stored[k] for k in stored if k.startswith(_RESULT)}
    return isolated, results


def differing(reference: Mapping[str, np.ndarray], port: Mapping[str, np.ndarray]) -> list[str]:
    """Names of numbers and arrays that differ by more than rounding, or that one side lacks."""
    names = {**reference, **port}
    return [
        name
        for name in names
        if name not in reference or distance(reference[name], port.get(name)) > floor_of(reference[name])
    ]


def _evidence(wrong: list[str], results: Mapping[str, Mapping[str, np.ndarray]], isolated: bool) -> dict[str, Any]:
    values = {
        name: {
            side: found[name].item() if name in found and found[name].size == 1 else None
            for side, found in results.items()
        }
        for name in wrong
    }
    return {"values": values, "same": [n for n in results["ref"] if n not in wrong], "on_reference_outputs": isolated}
