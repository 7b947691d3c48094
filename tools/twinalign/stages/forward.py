"""Stage 01: outputs of the model, and in training mode the buffers that the call has moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign.stages.context import StageContext
from twinalign.stages.drawing import initial_model


def record_forward(context: StageContext) -> None:
    """Record what `Case.observe` returns, and every moved buffer where the case runs in training mode."""
    model = initial_model(context)
    backend = context.backend
    inputs = context.inputs()
    buffers = _buffers(context, model) if context.case.train_mode else {}
    backend.set_training(model, context.case.train_mode)
    with backend.no_grad():
        outputs = context.case.observe(model, inputs, context.framework)
    context.add("output" if backend.is_tensor(outputs) else "", outputs)
    after = _buffers(context, model) if buffers else {}
    context.add_state(("buffer.", key, array) for key, array in after.items() if (array != buffers[key]).any())
    if not context.recording.arrays:
        raise ValueError(f"{context.case.name}: the model returned nothing to record")


def _buffers(context: StageContext, model: Any) -> dict[str, np.ndarray]:
    parameters = context.backend.named_parameters(model)
    return {key: array for key, array in context.backend.state_items(model) if key not in parameters}
