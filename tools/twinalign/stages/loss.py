"""Stage 04: the loss, and its parts where the case gives them."""

from __future__ import annotations

from twinalign.stages.context import StageContext, scalar_loss

__all__ = ["record_loss", "scalar_loss"]


def record_loss(context: StageContext) -> None:
    """Record every part of what `Case.loss` returns, on the outputs of the initial model."""
    model = context.build_model()
    inputs = context.inputs()
    context.backend.set_training(model, context.case.train_mode)
    with context.backend.no_grad():
        losses = context.step_of(model)(inputs).losses
    context.add("loss" if context.backend.is_tensor(losses) else "", losses)
