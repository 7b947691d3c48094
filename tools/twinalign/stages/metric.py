"""Stage 03: the model's metrics, on the same weights and data."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.backends.protocol import Backend
from twinalign.case.calling import call_model, named_values, on_cpu
from twinalign.case.definition import Case
from twinalign.case.moved_values import scaled_by_pattern
from twinalign.case.samples import first_samples
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.half_precision import rounded
from twinalign.files.recordings import ELSEWHERE, random_projections
from twinalign.stages.context import StageContext
from twinalign.stages.few_numbers import move_weights, repeat_few_numbers

_MOST_ENTERED = 64
"""Tensors that enter the model after which no other call is looked at."""
VARIATIONS = 12
"""On so many other values a metric is measured as well: one or two accuracies prove little."""
_SECONDS = 1.0
"""After so many no other model is evaluated for that."""


def record_metric(context: StageContext) -> None:
    """Record `Case.evaluate`, or model outputs and `Case.metric` over the `val` split.

    The float64 run measures on other values, too: a cut-off, or a tie, that no sample meets would not show.
    """
    context.add("", _measured(context))
    repeat_few_numbers(context, lambda draw: _measured(context, draw))
    if context.dtype == "float64" and not context.repeat:
        context.recording.metadata[ELSEWHERE] = list(_elsewhere(context))


def _measured(context: StageContext, draw: int | None = None) -> Any:
    case, model = context.case, context.build_model()
    if draw is not None:
        move_weights(context, model, draw)
    context.backend.set_training(model, False)
    with context.backend.no_grad(), _entering_noted(context, model):
        if evaluates_whole(case):
            return case.evaluate(model, context.framework, context.dtype)
        outputs, labels = _outputs_and_labels(context, model)
        return {"outputs": outputs, "metric": case.metric(outputs, labels, context.framework)}


def evaluates_whole(case: Case) -> bool:
    """Whether `Case.evaluate` is the whole stage."""
    return type(case).evaluate is not Case.evaluate


def _outputs_and_labels(context: StageContext, model: Any) -> tuple[Any, np.ndarray]:
    images, labels = collate(context)
    # The labels are arrays, and a metric written for a CPU calls `outputs.numpy()`.
    return on_cpu(call_model(model, {"x": images})), labels


def _elsewhere(context: StageContext) -> Iterator[dict[str, float]]:
    """What is measured with other weights, or with the labels of other samples, as far as it can be."""
    case, begun = context.case, time.monotonic()
    with contextlib.suppress(Exception), context.backend.no_grad():  # a user's code may refuse other values
        model = context.build_model()
        context.backend.set_training(model, False)
        if not evaluates_whole(case):
            outputs, labels = _outputs_and_labels(context, model)
            for rows in rolled(len(labels)):
                yield _numbers(context, {"metric": case.metric(outputs, labels[rows], context.framework)})
            return
        given = parameters_of(context.backend, context.canonical, model)
        for number in range(VARIATIONS):
            vary(context.backend, context.canonical, model, given, number)
            with _watched(context.backend, model) as is_in_domain:
                found = case.evaluate(model, context.framework, context.dtype)
            yield _numbers(context, found) if is_in_domain() else {}
            if time.monotonic() - begun > _SECONDS:
                return


@contextlib.contextmanager
def _watched(backend: Backend, model: Any) -> Iterator[Callable[[], bool]]:
    """Tells whether no layer of the model has returned NaN inside the block.

    Other weights may lead out of the model's domain, and the frameworks' kernels treat NaN in their own ways.
    """
    found: list[bool] = []

    def observe(path: str, layer: Any, given: list[Any], returned: list[Any]) -> None:
        numbers = [one for one in returned if "float" in backend.dtype_name(one)]
        found.append(any(map(math.isnan, backend.sums(numbers))))

    with backend.observing(model, observe):
        yield lambda: not any(found)


def rolled(count: int) -> list[np.ndarray]:
    """Orders of the labels of so many samples in which each sample has another's."""
    return [np.roll(np.arange(count), shift) for shift in range(1, min(VARIATIONS, count - 1) + 1)]


def parameters_of(backend: Backend, names: CanonicalNames, model: Any) -> dict[str, np.ndarray]:
    """The parameters of a model by the reference's names and in its layout, but for those that are buffers there."""
    own = {key: one for key, one in backend.named_parameters(model).items() if key not in names.buffers_there}
    items = (("", key, backend.to_array(parameter)) for key, parameter in own.items())
    return {name: array for _, name, array in names.to_reference(items)}


def vary(backend: Backend, names: CanonicalNames, model: Any, given: Mapping[str, np.ndarray], number: int) -> None:
    """Give a model the reference's parameters with every element scaled, in the same way on both sides."""
    varied = {name: scaled_by_pattern(array, number + 1) for name, array in given.items()}
    for key, parameter in backend.named_parameters(model).items():
        if (array := names.from_reference(key, varied)) is not None:
            backend.assign(parameter, array)


def _numbers(context: StageContext, found: Any) -> dict[str, float]:
    leaves = ((name, context.as_array(leaf)) for name, leaf in named_values(found, context.backend.is_tensor, "", {}))
    return {name: float(array.reshape(())) for name, array in leaves if array.size == 1 and np.isfinite(array).all()}


def collate(context: StageContext) -> tuple[Any, np.ndarray]:
    """Stack `(input, label)` samples of the `val` split into one batch."""
    samples = list(first_samples(context.case.dataset(context.framework, "val"), context.case.data_samples))
    pairs = [tuple(s.values())[:2] if isinstance(s, dict) else tuple(s)[:2] for s in samples]
    if not pairs or len(pairs[0]) != 2:
        raise ValueError(f"{context.case.name}: metric() needs (input, label) samples from dataset(framework, 'val')")
    as_array = [[context.as_array(part) for part in pair] for pair in pairs]
    inputs = rounded({"x": np.stack([pair[0] for pair in as_array])}, context.rounded_to)["x"]
    return context.backend.to_tensor(inputs, context.dtype, context.device), np.stack([pair[1] for pair in as_array])


@contextlib.contextmanager
def _entering_noted(context: StageContext, model: Any) -> Iterator[None]:
    """Put projections of each tensor that enters the model in the float64 run into the metadata, as `entered`.

    Each side makes its batches itself, mostly in float32. Where the two round otherwise, float64 proves nothing.
    """
    if context.dtype != "float64":
        yield
        return
    backend, depth, entered = context.backend, 0, list[list[float]]()

    def before(layer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        nonlocal depth
        if depth == 0 and len(entered) < _MOST_ENTERED:
            for tensor in backend.tensors_in((arguments, keywords)):
                array = backend.to_array(tensor)
                if array.dtype.kind == "f" and array.size:
                    entered.append(random_projections(array).tolist())
        depth += 1

    def after(*_: Any) -> None:
        nonlocal depth
        depth -= 1

    with contextlib.ExitStack() as stack:
        for layer in (layer for path, layer in backend.named_layers(model) if "." not in path):
            stack.callback(backend.watch_calls(layer, before, after))
        yield
    context.recording.metadata["entered"] = entered
