"""Stage 03: the model's metrics, on the same weights and data."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from twinalign.case.calling import call_model, on_cpu
from twinalign.case.definition import Case
from twinalign.files.half_precision import rounded
from twinalign.files.recordings import random_projections
from twinalign.stages.context import StageContext
from twinalign.stages.few_numbers import move_weights, repeat_few_numbers

_MOST_ENTERED = 64
"""Tensors that enter the model after which no other call is looked at."""


def record_metric(context: StageContext) -> None:
    """Record `Case.evaluate`, or model outputs and `Case.metric` over the `val` split."""
    context.add("", _measured(context))
    repeat_few_numbers(context, lambda draw: _measured(context, draw))


def _measured(context: StageContext, draw: int | None = None) -> Any:
    case, model = context.case, context.build_model()
    if draw is not None:
        move_weights(context, model, draw)
    context.backend.set_training(model, False)
    with context.backend.no_grad(), _entering_noted(context, model):
        if type(case).evaluate is not Case.evaluate:
            return case.evaluate(model, context.framework, context.dtype)
        images, labels = collate(context)
        outputs = call_model(model, {"x": images})
        # The labels are arrays, and a metric written for a CPU calls `outputs.numpy()`.
        return {"outputs": outputs, "metric": case.metric(on_cpu(outputs), labels, context.framework)}


def collate(context: StageContext) -> tuple[Any, np.ndarray]:
    """Stack `(input, label)` samples of the `val` split into one batch."""
    samples = list(itertools.islice(iter(context.case.dataset(context.framework, "val")), context.case.data_samples))
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
