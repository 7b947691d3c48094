"""Finds a wrong metric: it is judged on the reference's outputs and labels, so that a wrong model does not count."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.causes.metric.subject import explain_metric
from twinalign.replay.mended_components import metric_mended
from twinalign.replay.metric import PART, STAGE, differing, record_mended_metric, record_metric, results_of
from twinalign.search.components import ComponentContext, Mended
from twinalign.search.elements_apart import elements_apart
from twinalign.search.faults import Fault
from twinalign.sides import SIDES
from twinalign.stages.metric import VARIATIONS

METRIC = "metric"
_SECONDS, _SECONDS_OF_ALL = 1.0, 2.0
"""An evaluation that takes longer than the former is not repeated where its numbers are right. Each side evaluates so
many more models as take the latter."""
_FEW = 3
"""And so many at least."""


def locate_metric(context: ComponentContext) -> list[Fault]:
    """The fault of the metric (component `metric`), if there is one.

    An evaluation that cannot be given what the reference's model returned shows what is wrong in the model, too. Where
    a layer is wrong, such a metric is blamed only if a cause within it is proven.
    """
    if STAGE not in context.stages or STAGE not in context.weights:
        return []
    weights = context.weights[STAGE]
    paths = {side: context.folder / f"metric_{side}.npz" for side in SIDES}
    variations = 0
    answer, results = _record(context, weights, paths)
    wrong = differing(results["ref"], results["paddle"])
    if answer["whole"] and (context.explain if wrong else answer["seconds"] <= _SECONDS):
        # One or two accuracies prove little, so more models are evaluated.
        variations = min(VARIATIONS, max(_FEW, int(_SECONDS_OF_ALL / max(answer["seconds"], 1e-3))))
        answer, results = _record(context, weights, paths, variations)
        wrong = differing(results["ref"], results["paddle"])
    faults, functions = [], context.functions_of_port() if wrong else {}
    if wrong and not _follows(context, paths, results["ref"], variations):
        inherited = not answer["isolated"] and context.is_wrong_before
        inherited = inherited or (answer["whole"] and context.data_is_wrong)
        given = {"reference": str(paths["ref"]), "variations": variations, "weights": weights["paddle"]}
        given["names"] = sorted({name.partition(PART)[0] for name in wrong})
        explanation = context.explanation(
            explain_metric,
            functions,
            mended=None if context.is_wrong_before else Mended(metric_mended, METRIC, given, STAGE, "metric"),
            weights=weights["ref"],
            reference=str(paths["ref"]),
            port=str(paths["paddle"]),
        )
        if explanation is not None or not inherited:
            evidence = _evidence(wrong, results, answer["isolated"])
            evidence["parts"] = "varied model #" if answer["whole"] else "part # of the samples"
            faults.append(Fault(METRIC, METRIC, "metric", explanation, evidence))
    for path in paths.values():
        path.unlink(missing_ok=True)
    return faults


def _follows(
    context: ComponentContext, paths: Mapping[str, Path], right: Mapping[str, np.ndarray], variations: int
) -> bool:
    """Whether the port measures what the reference measures with the edits that have mended its other parts."""

    def is_right(path: Path) -> bool:
        with np.load(path, allow_pickle=False) as stored:
            return not differing(right, results_of(dict(stored)))

    given = {"weights": context.weights[STAGE]["paddle"], "given": str(paths["ref"]), "variations": variations}
    return context.follows(record_mended_metric, is_right, **given)


def _record(
    context: ComponentContext, weights: Mapping[str, Any], paths: Mapping[str, Path], variations: int = 0
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """What `record_metric` says of the port, and both sides' numbers by name."""
    answer: dict[str, Any] = {}
    results = {}
    for side in SIDES:
        answer = context.processes[side].call(
            record_metric,
            weights=weights[side],
            path=str(paths[side]),
            given=str(paths["ref"]) if side == "paddle" else None,
            variations=variations,
        )
        with np.load(paths[side], allow_pickle=False) as stored:
            results[side] = results_of(dict(stored))
    return answer, results


def _evidence(wrong: list[str], results: Mapping[str, Mapping[str, np.ndarray]], isolated: bool) -> dict[str, Any]:
    values = {
        name: {
            side: found[name].item() if name in found and found[name].size == 1 else None
            for side, found in results.items()
        }
        for name in wrong
    }
    both = {name: [found[name] for found in results.values() if name in found] for name in wrong}
    arrays = {name: elements_apart(*two) for name, two in both.items() if len(two) == 2 and two[0].size > 1}
    same = [name for name in results["ref"] if name not in wrong]
    return {"values": values, "arrays": arrays, "same": same, "on_reference_outputs": isolated}
