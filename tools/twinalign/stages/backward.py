"""Stage 05: complete optimizer steps; every gradient, parameter, buffer and optimizer tensor after each."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign.backends.state_layout import tied_keys
from twinalign.errors import InputError
from twinalign.processes.machine import freed_at_once
from twinalign.stages.context import StageContext
from twinalign.stages.random_draws import initial_model


def record_backward(context: StageContext) -> None:
    """Run `Case.steps` steps: schedule, forward, loss, backward, update; large tensors are recorded by sample."""
    case, backend = context.case, context.backend
    model = initial_model(context)
    backend.set_training(model, case.train_mode)
    parameters = backend.named_parameters(model)
    trainable = [p for p in parameters.values() if backend.trainable(p)]
    if not trainable:
        raise InputError(
            f"case {case.name}: the {context.framework} model has no trainable parameters for optimizer(); "
            "leave out optimizer() or give stages without backward"
        )
    optimizer = case.optimizer(trainable, context.framework)
    # Parameters, gradients, optimizer state and activations in float64 are what takes the most memory of all stages.
    with freed_at_once() if context.dtype == "float64" else contextlib.nullcontext():
        _record_steps(context, model, parameters, optimizer)


def _record_steps(context: StageContext, model: Any, parameters: Mapping[str, Any], optimizer: Any) -> None:
    case, backend = context.case, context.backend
    run = context.step_of(model)
    for step in range(case.steps):
        if step and not case.train_mode:
            # Some models keep what their parameters give as long as they are in eval mode, with its graph: attention
            # biases (LeViT), merged weights. Entering the mode anew forgets it, as every training loop does.
            backend.set_training(model, True)
            backend.set_training(model, False)
        scheduled = case.schedule(optimizer, step, context.framework) or {}
        inputs = context.inputs(step)
        values = run(inputs)
        values.loss.backward()

        prefix = f"step{step}."
        context.add(prefix + "loss", values.losses)
        context.recording.add(prefix + "learning_rate", np.asarray(backend.learning_rate(optimizer)))
        for name, value in scheduled.items():
            context.recording.add(prefix + name, np.asarray(value))
        context.add_state((prefix + "gradient.", key, array) for key, array in backend.gradient_items(model))
        optimizer.step()
        backend.clear_gradients(model)
        _record_state(context, model, parameters, optimizer, prefix)
        context.progress(f"step {step + 1} of {case.steps}")


def _record_state(
    context: StageContext, model: Any, parameters: Mapping[str, Any], optimizer: Any, prefix: str
) -> None:
    state = context.backend.state_tensors(model)
    tied = tied_keys(state)  # recorded once: the other side may have no such second name
    trained = parameters.keys() - context.canonical.buffers_there
    context.add_state(
        (prefix + ("parameter." if key in trained else "buffer."), key, context.backend.values_of(tensor))
        for key, tensor in state.items()
        if key not in tied or key in parameters
    )
    context.add_state(
        (f"{prefix}{quantity}.", key, array)
        for quantity, key, array in context.backend.optimizer_items(model, optimizer)
    )
