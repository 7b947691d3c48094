"""Stage 04: the loss, and its parts if the case returns them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign.case.moved_values import moved_at_random, whole_numbers_kept
from twinalign.stages.context import StageContext
from twinalign.stages.few_numbers import move_weights, repeat_few_numbers
from twinalign.stages.random_draws import initial_model


def record_loss(context: StageContext) -> None:
    """Record every part of what `Case.loss` returns, on the outputs of the initial model."""
    arrays = context.step_inputs()
    losses = _losses(context, arrays)
    context.add("loss" if context.backend.is_tensor(losses) else "", losses)
    repeat_few_numbers(context, lambda draw: _losses(context, arrays, draw), "loss")


def _losses(context: StageContext, arrays: Mapping[str, np.ndarray], draw: int | None = None) -> Any:
    model = initial_model(context)
    if draw is not None:
        moved = whole_numbers_kept(moved_at_random(arrays, draw), arrays)
        if all(np.array_equal(moved[name], array, equal_nan=array.dtype.kind == "f") for name, array in arrays.items()):
            move_weights(context, model, draw)
        arrays = moved
    inputs = context.as_tensors(arrays)
    context.backend.set_training(model, context.case.train_mode)
    with context.backend.no_grad():
        return context.step_of(model)(inputs).losses
