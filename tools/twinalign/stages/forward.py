"""Stage 01: outputs of the model, and in training mode the buffers that the call has moved."""

from __future__ import annotations

from twinalign.stages.context import StageContext


def record_forward(context: StageContext) -> None:
    """Record what `Case.observe` returns, and every moved buffer where the case runs in training mode."""
    model = context.build_model()
    backend = context.backend
    inputs = context.inputs()
    before = backend.state_arrays(model) if context.case.train_mode else {}
    backend.set_training(model, context.case.train_mode)
    with backend.no_grad():
        outputs = context.case.observe(model, inputs, context.framework)
    context.add("output" if backend.is_tensor(outputs) else "", outputs)
    parameters = backend.named_parameters(model)
    after = backend.state_arrays(model) if context.case.train_mode else {}
    moved = {k: v for k, v in after.items() if k not in parameters and (v != before[k]).any()}
    context.add_state("buffer.", moved)
    if not context.recording.arrays:
        raise ValueError(f"{context.case.name}: the model returned nothing to record")
