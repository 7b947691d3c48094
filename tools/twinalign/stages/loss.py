"""Stage 04: the loss, and its parts if the case returns them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign.case.calling import named_values
from twinalign.case.moved_values import moved_at_random
from twinalign.stages.context import StageContext
from twinalign.stages.random_draws import initial_model

REPEATS = 4
"""How often the reference computes its loss once more, from inputs moved by one unit in the last place."""
FEW = 16
"""Elements below which one run says too little of what rounding does: errors cancel in a number by luck."""


def record_loss(context: StageContext) -> None:
    """Record every part of what `Case.loss` returns, on the outputs of the initial model.

    In the precision that is judged the reference repeats what has few elements; see docs/verdict.md, "Few numbers".
    """
    arrays = context.step_inputs()
    losses = _losses(context, arrays)
    context.add("loss" if context.backend.is_tensor(losses) else "", losses)
    few = {name for name, array in context.recording.arrays.items() if array.size < FEW and array.dtype.kind == "f"}
    if few and context.framework == "torch" and context.dtype != "float64" and not context.moved:
        repeats = [_repeated(context, arrays, draw) for draw in range(REPEATS)]
        context.recording.metadata["repeats"] = {
            name: [found[name].ravel().tolist() for found in repeats]
            for name in sorted(few)
            if all(np.isfinite(found[name]).all() for found in repeats)
        }


def _losses(context: StageContext, arrays: Mapping[str, np.ndarray], draw: int | None = None) -> Any:
    model = initial_model(context)
    is_floating = any(array.dtype.kind == "f" for array in arrays.values())
    if draw is not None and is_floating:
        arrays = moved_at_random(arrays, draw)
    elif draw is not None:
        state = moved_at_random(dict(context.backend.state_items(model)), draw)
        context.backend.load_state_arrays(model, state)
    inputs = context.as_tensors(arrays)
    context.backend.set_training(model, context.case.train_mode)
    with context.backend.no_grad():
        return context.step_of(model)(inputs).losses


def _repeated(context: StageContext, arrays: Mapping[str, np.ndarray], draw: int) -> dict[str, np.ndarray]:
    losses = _losses(context, arrays, draw)
    prefix = "loss" if context.backend.is_tensor(losses) else ""
    leaves = named_values(losses, context.backend.is_tensor, prefix)
    return {name: context.as_array(leaf) for name, leaf in leaves}
