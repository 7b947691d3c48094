"""Stage 06: real training; curves over the steps, the resulting weights, and the outcomes at the end."""

import contextlib
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case.moved_values import moved_arrays
from twinalign.errors import InputError
from twinalign.files.curve_names import CURVE_PREFIX, OUTCOME_PREFIX, REPEAT_PREFIX, WEIGHTS_PREFIX
from twinalign.files.recordings import PLANNED_STEPS
from twinalign.stages.checkpoints import CheckpointPlace
from twinalign.stages.context import StageContext
from twinalign.stages.training_plan import TrainingPlan, keep_data
from twinalign.stages.watching import RUNNING_VARIANCE, run_training

_FLOAT32_ROUNDING = 2.0**-24
_QUIET_SECONDS = 10.0


def record_train(context: StageContext) -> None:
    """Record the curves and outcomes of `Case.train`; in float64 only its first `float64_train_steps` steps.

    The reference trains a second time with changes as small as those that two frameworks may have: how far its curves
    move apart is the effect of rounding on this training, and the measure for the port. In float32 the weights and the
    model's inputs change by one unit in the last place, since each side may make its data itself. In float64 the
    learning rate and weight decay change by one part in 2^24, the effect of a framework that keeps them in float32, and
    the weights by one part in 10^10, the effect of a normalisation's epsilon in float32.
    """
    steps = context.case.float64_train_steps if context.dtype == "float64" else None
    steps = context.plan.steps or steps
    if context.plan.steps:
        context.recording.metadata[PLANNED_STEPS] = context.plan.steps
    # What an experiment or float64 trains is short, or must not go on from the middle.
    place = context.checkpoints if steps is None and context.plan == TrainingPlan(context.plan.repeat) else None
    _train(context, context.build_model(), "", steps, context.plan, place)
    if context.framework == "torch" and context.plan.repeat:
        model = context.build_model()
        moved = moved_arrays(context.backend.state_items(model), context.dtype, constants=True)
        context.backend.load_state_arrays(model, dict(moved))
        kept = context.plan.keep
        plan = TrainingPlan(moved=True, keep=f"{kept}.moved.npz" if kept else "")
        with _moved_scalars(context.dtype):
            _train(context, model, REPEAT_PREFIX, steps, plan, place.below("repeat") if place else None)
        if kept:
            keep_data(Path(kept), Path(plan.keep))


def _moved_scalars(dtype: str) -> contextlib.AbstractContextManager[Any]:
    if dtype != "float64":
        return contextlib.nullcontext()
    from twinalign.backends.torch.reference_only.changed_training import moved_scalars

    return moved_scalars(_FLOAT32_ROUNDING)


def _train(
    context: StageContext, model: Any, prefix: str, steps: int | None, plan: TrainingPlan, place: CheckpointPlace | None
) -> None:
    reported = 0.0

    def on_step(step: int, values: Mapping[str, float]) -> None:
        nonlocal reported
        now = time.perf_counter()
        if step % 50 == 0 or now - reported >= _QUIET_SECONDS:
            reported = now
            loss = f", loss {values['loss']:.4f}" if "loss" in values else ""
            context.progress(f"{prefix}step {step}{loss}")
        context.points(prefix, step, {name: value for name, value in values.items() if math.isfinite(value)})

    found = run_training(
        context.case, context.framework, context.backend, model, context.canonical, steps, plan, on_step, place
    )
    for name, points in found.points.items():
        context.recording.add(prefix + CURVE_PREFIX + name, points)
    state = (("", key, array) for key, array in context.backend.state_items(model))
    for _, name, array in context.canonical.to_reference(state):
        if not name.endswith(RUNNING_VARIANCE) and array.dtype.kind == "f" and array.size:
            context.recording.add(prefix + WEIGHTS_PREFIX + name, weight_statistics(array))
    for name, value in (found.outcomes if steps is None else {}).items():
        context.recording.add(prefix + OUTCOME_PREFIX + name, _outcome(context.case.name, name, value))
    if found.rounded:
        context.recording.metadata["rounded_batches"] = found.rounded
    context.recording.metadata[prefix + "step_seconds"] = [round(seconds, 5) for seconds in found.seconds]


def _outcome(case: str, name: str, value: Any) -> np.ndarray:
    """`(percent, samples)` as `[2]`, float64; raises InputError if it is anything else."""
    with contextlib.suppress(TypeError, ValueError):
        outcome = np.asarray(value, dtype=np.float64)
        if outcome.shape == (2,):
            return outcome
    raise InputError(
        f"case {case}: train returned {name!r} = {value!r}; an outcome is (percent, samples), an accuracy and its "
        f"number of samples; any other number is told by record({name!r}, value)"
    )


def weight_statistics(array: np.ndarray) -> np.ndarray:
    """Mean, standard deviation, root mean square, greatest magnitude and number of axes of a tensor, `[5]`, float64."""
    values = array.astype(np.float64, copy=False)
    root_mean_square = np.sqrt(np.square(values).mean())
    return np.array([values.mean(), values.std(), root_mean_square, np.abs(values).max(), array.ndim])
