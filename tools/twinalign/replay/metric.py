"""Records a metric on given outputs and labels, or a whole evaluation, on one side."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case.calling import call_model, named_values
from twinalign.case.definition import Case
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.recordings import save_npz
from twinalign.replay.evaluation_calls import EvaluationCalls, rows_of
from twinalign.replay.kept_edits import recorded_mended
from twinalign.replay.layer_calls import wrapped
from twinalign.replay.nested_tensors import put_together, take_apart
from twinalign.replay.noted_functions import noted
from twinalign.stages.context import StageContext
from twinalign.stages.metric import collate, evaluates_whole, parameters_of, rolled, vary
from twinalign.verdict.array_difference import distance, root_mean_square

STAGE = "metric"
PART = " on part "
"""Stands between the name of a result and the number of the part of the rows that it was measured on.

No name that a user gives a result has it, as `acc@5` has an `@`.
"""
PARTS, LEAST_ROWS = 4, 6
_OUTPUT, _LABELS, _CALL, _RESULT = "output.", "labels", "call.", "result."
_TOLERANCE = 2e-6


@noted
def record_metric(
    worker: Any, weights: Mapping[str, Any], path: str, given: str | None = None, variations: int = 0
) -> dict[str, Any]:
    """Write the metric's numbers; for a case with `Case.metric` also the outputs and labels that it measured.

    Args:
        weights: as for `Worker.build_model`.
        path: the `.npz` file to write: `result.NAME` (for parts of the rows `result.NAME on part NUMBER`),
            `output.NUMBER` and `labels`.
        given: a file of the other side, whose outputs and labels are measured; an evaluation as a whole goes on with
            what the other side's model returned.
        variations: how many more models `Case.evaluate` evaluates; their numbers are `result.NAME on part NUMBER`.

    Returns:
        `isolated`: whether the given outputs were measured; `whole`: whether it is an evaluation as a whole; `seconds`
        that it took.
    """
    begun = time.monotonic()
    arrays, isolated, whole = measured(worker, weights, given, variations)
    save_npz(Path(path), arrays)
    return {"isolated": isolated, "whole": whole, "seconds": time.monotonic() - begun}


def record_mended_metric(worker: Any, **given: Any) -> dict[str, Any]:
    """`record_metric` of the port with the edits that have mended its other parts; nothing where there are none."""
    return recorded_mended(worker, record_metric, **given)


def measured(
    worker: Any, weights: Mapping[str, Any], given: str | None, variations: int
) -> tuple[dict[str, np.ndarray], bool, bool]:
    """What `record_metric` writes, and what it returns."""
    case = worker.fresh_case(STAGE)
    whole = evaluates_whole(case)
    worker.backend.set_seed(case.seed)
    with worker.backend.default_dtype("float64"), worker.backend.no_grad():
        if whole:
            arrays, isolated = _evaluations(worker, weights, [None, *range(variations)], given)
        else:
            arrays, isolated = _measured(worker, case, weights, given)
    return arrays, isolated, whole


def results_of(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The numbers among what `record_metric` writes."""
    return {name.removeprefix(_RESULT): arrays[name] for name in arrays if name.startswith(_RESULT)}


def differing(reference: Mapping[str, np.ndarray], port: Mapping[str, np.ndarray]) -> list[str]:
    """Names of numbers and arrays that differ by more than rounding, or that one side lacks."""
    names = {**reference, **port}
    return [
        name
        for name in names
        if name not in reference or distance(reference[name], port.get(name)) > floor_of(reference[name])
    ]


def floor_of(number: np.ndarray) -> float:
    """What rounding may leave of a number: accuracies are quotients that a framework may hold in float32."""
    return _TOLERANCE * root_mean_square(number)


def _measured(
    worker: Any, case: Case, weights: Mapping[str, Any], given: str | None
) -> tuple[dict[str, np.ndarray], bool]:
    """`Case.metric` of all rows and of parts of them, with what it measured, and whether that was given."""
    backend = worker.backend
    outputs, labels = outputs_and_labels(worker, case, _built(worker, case, weights))
    tensors, skeleton = take_apart(outputs, backend.is_tensor)
    isolated = True
    if given:
        with np.load(given, allow_pickle=False) as other:
            arrays_given = [other[key] for key in sorted_outputs(other)]
            labels = other[_LABELS]
        isolated = [list(a.shape) for a in arrays_given] == [list(t.shape) for t in tensors]
        if isolated:
            tensors = [backend.to_tensor(array, "float64", worker.device) for array in arrays_given]
    arrays = {f"{_OUTPUT}{number}": backend.to_array(tensor) for number, tensor in enumerate(tensors)}
    arrays[_LABELS] = labels
    result = case.metric(put_together(skeleton, tensors), labels, worker.framework)
    arrays |= {f"{_RESULT}{name}": value for name, value in numbers_of(backend, result).items()}
    for number, (rows, of_labels) in enumerate(parts(len(labels))):
        chosen = [rows_of(backend.to_array(tensor), rows, len(labels)) for tensor in tensors]
        some = put_together(skeleton, [backend.to_tensor(a, "float64", worker.device) for a in chosen])
        with contextlib.suppress(Exception):  # a metric may refuse fewer samples, or others' labels
            found = numbers_of(backend, case.metric(some, labels[of_labels], worker.framework))
            arrays |= {f"{_RESULT}{name}{PART}{number}": value for name, value in found.items()}
    return arrays, isolated


def _evaluations(
    worker: Any, weights: Mapping[str, Any], numbers: Sequence[int | None], given: str | None
) -> tuple[dict[str, np.ndarray], bool]:
    """What `Case.evaluate` returns for the model (None) and varied ones, and whether the given outputs were used."""
    kept = None
    if given:
        with np.load(given, allow_pickle=False) as other:
            kept = {name: other[name] for name in other if name.startswith(_CALL)}
    found, isolated = _evaluated(worker, weights, numbers, kept)
    return (found, isolated) if isolated or not given else _evaluated(worker, weights, numbers, None)


def _evaluated(
    worker: Any,
    weights: Mapping[str, Any],
    numbers: Sequence[int | None],
    kept: Mapping[str, np.ndarray] | None,
) -> tuple[dict[str, np.ndarray], bool]:
    arrays: dict[str, np.ndarray] = {}
    isolated = kept is not None
    for number in numbers:
        case = worker.fresh_case(STAGE)
        model = _built(worker, case, weights) if number is None else varied_model(worker, case, weights, number)
        calls = EvaluationCalls(worker.backend, worker.device, f"{_CALL}{number}", kept)
        with wrapped(worker.backend.named_layers(model), calls.around):
            found = numbers_of(worker.backend, case.evaluate(model, worker.framework, "float64"))
        part = "" if number is None else f"{PART}{number}"
        arrays |= {f"{_RESULT}{name}{part}": value for name, value in found.items()} | calls.arrays
        isolated = isolated and calls.followed
    return arrays, isolated


def _built(worker: Any, case: Case, weights: Mapping[str, Any]) -> Any:
    model = worker.build_model(case, STAGE, "float64", weights)
    worker.backend.set_training(model, False)
    return model


def varied_model(worker: Any, case: Case, weights: Mapping[str, Any], number: int) -> Any:
    """The model with every element of its parameters scaled, in the same way on both sides."""
    backend = worker.backend
    model = _built(worker, case, weights)
    names = CanonicalNames.of(weights)
    vary(backend, names, model, parameters_of(backend, names, model), number)
    return model


def parts(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of outputs and of labels that are measured as well: fewer of them, and the labels of other samples."""
    rng, every = np.random.RandomState(0), np.arange(count)
    fewer = [
        np.sort(rng.permutation(count)[: count - 1 - number]) for number in range(PARTS if count >= LEAST_ROWS else 0)
    ]
    return [*((rows, rows) for rows in fewer), *((every, rows) for rows in rolled(count))]


def sorted_outputs(arrays: Any) -> list[str]:
    """Names of the outputs in a file, in order."""
    return sorted((key for key in arrays if key.startswith(_OUTPUT)), key=lambda key: int(key.partition(".")[2]))


def outputs_and_labels(worker: Any, case: Case, model: Any) -> tuple[Any, np.ndarray]:
    """What the metric stage passes to `Case.metric`: outputs for the validation samples, and their labels."""
    given = (worker.framework, worker.backend, "float64", worker.device)
    context = StageContext(case, *given, lambda: model, CanonicalNames(), lambda text: None)
    images, labels = collate(context)
    return call_model(model, {"x": images}), labels


def numbers_of(backend: Any, result: Any) -> dict[str, np.ndarray]:
    """Every number and array of a result by name; a single one is named `metric`."""
    return {
        name: np.asarray(backend.to_array(leaf) if backend.is_tensor(leaf) else leaf, dtype=np.float64)
        for name, leaf in named_values(result, backend.is_tensor, "metric")
    }
