"""The metric's part of locating, on one side: the numbers on given outputs and labels, or of the whole evaluation."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case import Case
from twinalign.locate.nesting import put_together, take_apart
from twinalign.locate.optimizer_steps import gradient_of_step
from twinalign.recording import save_npz
from twinalign.stages.calling import call_model, named_values
from twinalign.stages.context import StageContext
from twinalign.stages.metric import collate
from twinalign.stages.naming import CanonicalNames

STAGE = "metric"
PART = "@"
"""Before the number of a part of the rows, after the name of what was measured of them."""
PARTS, LEAST_ROWS = 4, 6
_OUTPUT, _LABELS = "output.", "labels"


def evaluates(case: Case) -> bool:
    """Whether the case evaluates a model by itself, and not outputs that it is given."""
    return type(case).evaluate is not Case.evaluate


def record_metric(
    worker: Any, weights: Mapping[str, Any], path: str, given: str | None = None, variations: int = 0
) -> dict[str, Any]:
    """Write the metric's numbers; of a case with `Case.metric` also the outputs and labels that they come from.

    Args:
        worker: the recorder that calls.
        weights: what `Worker.build_model` takes.
        path: the `.npz` file to write: `result.NAME` (of parts of the rows `result.NAME@PART`),
            `output.NUMBER` and `labels`.
        given: a file of the other side, whose outputs and labels are taken.
        variations: how many more models an evaluation as a whole is made of; their numbers are `result.NAME@NUMBER`.

    Returns:
        `isolated`: whether the numbers are those of the outputs that were given.
    """
    case = worker.fresh_case(STAGE)
    backend = worker.backend
    backend.set_seed(case.seed)
    arrays: dict[str, np.ndarray] = {}
    with backend.default_dtype("float64"), backend.no_grad():
        model = worker.build_model(case, STAGE, "float64", weights)
        backend.set_training(model, False)
        if evaluates(case):
            result, isolated = case.evaluate(model, worker.framework, "float64"), False
            for number in range(variations):
                model = varied_model(worker, case, weights, number)
                found = numbers_of(backend, case.evaluate(model, worker.framework, "float64"))
                arrays |= {f"result.{name}{PART}{number}": value for name, value in found.items()}
        else:
            outputs, labels = outputs_and_labels(worker, case, model)
            tensors, skeleton = take_apart(outputs, backend.is_tensor)
            isolated = True
            if given:
                with np.load(given, allow_pickle=False) as other:
                    arrays_given = [other[key] for key in sorted_outputs(other)]
                    labels = other[_LABELS]
                isolated = [list(a.shape) for a in arrays_given] == [list(t.shape) for t in tensors]
                if isolated:
                    tensors = [backend.to_tensor(array, "float64", worker.device) for array in arrays_given]
            arrays |= {f"{_OUTPUT}{number}": backend.to_array(tensor) for number, tensor in enumerate(tensors)}
            arrays[_LABELS] = labels
            result = case.metric(put_together(skeleton, tensors), labels, worker.framework)
            for number, rows in enumerate(parts(len(labels))):
                some = put_together(skeleton, [part_of(backend, worker.device, tensor, rows) for tensor in tensors])
                with contextlib.suppress(Exception):  # a metric need not be able to measure fewer samples
                    found = numbers_of(backend, case.metric(some, labels[rows], worker.framework))
                    arrays |= {f"result.{name}{PART}{number}": value for name, value in found.items()}
    arrays |= {f"result.{name}": value for name, value in numbers_of(backend, result).items()}
    save_npz(Path(path), arrays)
    return {"isolated": isolated}


def varied_model(worker: Any, case: Case, weights: Mapping[str, Any], number: int) -> Any:
    """The model with every parameter scaled element by element, on both sides in the same way."""
    backend = worker.backend
    model = worker.build_model(case, STAGE, "float64", weights)
    backend.set_training(model, False)
    parameters = backend.named_parameters(model)
    names = CanonicalNames.of(weights)
    items = (("", key, backend.to_array(parameter)) for key, parameter in parameters.items())
    varied = {name: gradient_of_step(array, number + 1) for _, name, array in names.to_reference(items)}
    for key, parameter in parameters.items():
        if (array := names.from_reference(key, varied)) is not None:
            backend.assign(parameter, array)
    return model


def parts(count: int) -> list[np.ndarray]:
    """Rows of which the metric is measured as well: one number proves little, and these are other ones."""
    if count < LEAST_ROWS:
        return []
    rng = np.random.RandomState(0)
    return [np.sort(rng.permutation(count)[: count - 1 - number]) for number in range(PARTS)]


def part_of(backend: Any, device: str, tensor: Any, rows: np.ndarray) -> Any:
    """Some rows of an output."""
    return backend.to_tensor(backend.to_array(tensor)[rows], "float64", device)


def sorted_outputs(arrays: Any) -> list[str]:
    """Names of the outputs in a file, in their order."""
    return sorted((key for key in arrays if key.startswith(_OUTPUT)), key=lambda key: int(key.partition(".")[2]))


def outputs_and_labels(worker: Any, case: Case, model: Any) -> tuple[Any, np.ndarray]:
    """What the metric stage gives `Case.metric`: outputs for the validation samples, and their labels."""
    context = StageContext(
        case=case,
        framework=worker.framework,
        backend=worker.backend,
        dtype="float64",
        device=worker.device,
        build_model=lambda: model,
        canonical=CanonicalNames(),
        progress=lambda text: None,
    )
    images, labels = collate(context)
    return call_model(model, {"x": images}), labels


def numbers_of(backend: Any, result: Any) -> dict[str, np.ndarray]:
    """Every number and array of a result by name, a lone one as `metric`."""
    return {
        name: np.asarray(backend.to_array(leaf) if backend.is_tensor(leaf) else leaf, dtype=np.float64)
        for name, leaf in named_values(result, backend.is_tensor, "metric")
    }
