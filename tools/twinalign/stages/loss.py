"""Stage 04: the loss, and its parts where the case gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinalign.stages.context import StageContext


def record_loss(context: StageContext) -> None:
    """Record every part of what `Case.loss` returns, on the outputs of the initial model."""
    model = context.build_model()
    inputs = context.inputs()
    context.backend.set_training(model, context.case.train_mode)
    with context.backend.no_grad():
        outputs = context.case.forward(model, inputs, context.framework)
        losses = context.case.loss(outputs, inputs, context.framework)
    context.add("loss" if context.backend.is_tensor(losses) else "", losses)


def scalar_loss(losses: Any) -> Any:
    """The tensor to differentiate: the loss itself, or `losses["loss"]`; raises ValueError where there is neither."""
    if not isinstance(losses, Mapping):
        return losses
    if "loss" not in losses:
        raise ValueError(f'loss() returned {list(losses)} and no "loss" to differentiate')
    return losses["loss"]
