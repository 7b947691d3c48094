"""Stage 01: outputs of the model, and in training mode the buffers that the call has changed."""

from typing import Any

import numpy as np

from twinalign.case.calling import named_values
from twinalign.files.half_precision import rounded
from twinalign.files.recordings import hash_arrays
from twinalign.stages.context import StageContext, step_inputs
from twinalign.stages.random_draws import initial_model


def record_forward(context: StageContext) -> None:
    """Record the result of `Case.observe`, and in training mode every changed buffer."""
    model = initial_model(context)
    backend = context.backend
    inputs = context.inputs()
    buffers = _buffers(context, model) if context.case.train_mode else {}
    backend.set_training(model, context.case.train_mode)
    with backend.no_grad():
        outputs = context.case.observe(model, inputs, context.framework)
    context.add(_prefix(context, outputs), outputs)
    after = _buffers(context, model) if buffers else {}
    context.add_state(("buffer.", key, array) for key, array in after.items() if (array != buffers[key]).any())
    if not context.recording.arrays:
        kinds = ", ".join(sorted(set(context.recording.metadata.get("left_out", {}).values())))
        raise ValueError(
            f"{context.case.name}: the model returned nothing to record" + (f", only {kinds}" if kinds else "")
        )
    if context.framework == "torch" and context.dtype != "float64" and not (context.repeat or context.further_seeds):
        context.recording.metadata["effect_of_inputs"] = _effect_of_inputs(context)


def _prefix(context: StageContext, outputs: Any) -> str:
    """A single tensor is named `output`, those of a dictionary or a tuple by their own names."""
    return "output" if context.backend.is_tensor(outputs) else ""


def _effect_of_inputs(context: StageContext) -> float | None:
    """Greatest relative change (root mean square) of an output by other inputs; None if the inputs never change."""
    other = step_inputs(context.case, 1)
    if hash_arrays(other) == hash_arrays(step_inputs(context.case)):
        return None
    model = initial_model(context)
    context.backend.set_training(model, context.case.train_mode)
    inputs = context.as_tensors(rounded(other, context.rounded_to))
    with context.backend.no_grad():
        outputs = context.case.observe(model, inputs, context.framework)
    changes = [0.0]
    for name, leaf in named_values(outputs, context.backend.is_tensor, _prefix(context, outputs), {}):
        array, first = context.as_array(leaf), context.recording.arrays.get(name)
        if first is None or first.shape != array.shape:
            return None  # their shapes depend on the inputs
        norm = float(np.linalg.norm(first.astype(np.complex128)))
        change = float(np.linalg.norm(array.astype(np.complex128) - first))
        changes.append(change / norm if norm else float(change > 0))
    return max(changes) if np.isfinite(changes).all() else None


def _buffers(context: StageContext, model: Any) -> dict[str, np.ndarray]:
    parameters, state = context.backend.named_parameters(model), context.backend.state_tensors(model)
    return {key: context.backend.to_array(tensor) for key, tensor in state.items() if key not in parameters}
