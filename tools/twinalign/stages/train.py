"""Stage 06: real training; curves over steps, and the outcomes at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign.stages.context import StageContext
from twinalign.stages.moving import moved_arrays

CURVE_PREFIX = "curve."
OUTCOME_PREFIX = "outcome."
REPEAT_PREFIX = "repeat."
"""Before the names of the reference's second training, from weights moved a little."""


def record_train(context: StageContext) -> None:
    """Record the curves and outcomes of `Case.train`; in float64 only its first `float64_train_steps` steps.

    The reference trains a second time, from weights moved by as little as the two frameworks may differ: how far its
    curves part is what rounding alone does to this training, and the yardstick for the port. In float32 that is one
    unit in the last place; in float64 one part in 10^10, what a normalisation's epsilon stored in float32 leaves.
    """
    steps = context.case.float64_train_steps if context.dtype == "float64" else None
    _train(context, context.build_model(), "", steps)
    if context.framework == "torch":
        model = context.build_model()
        context.backend.load_state_arrays(model, dict(moved_arrays(context.backend.state_items(model), context.dtype)))
        _train(context, model, REPEAT_PREFIX, steps)


def _train(context: StageContext, model: Any, prefix: str, steps: int | None) -> None:
    curves: dict[str, list[float]] = {}

    def record(name: str, value: Any) -> None:
        curves.setdefault(name, []).append(float(value))
        if name == "loss" and len(curves[name]) % 50 == 0:
            context.progress(f"{prefix}step {len(curves[name])}, loss {curves[name][-1]:.4f}")

    outcomes = context.case.train(context.framework, model, record, steps)
    for name, points in curves.items():
        context.recording.add(prefix + CURVE_PREFIX + name, np.asarray(points))
    for name, value in (outcomes if steps is None else {}).items():
        context.recording.add(prefix + OUTCOME_PREFIX + name, np.asarray(value, dtype=np.float64).reshape(2))
