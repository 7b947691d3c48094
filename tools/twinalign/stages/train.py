"""Stage 06: real training; curves over steps, and the outcomes at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign.stages.context import StageContext

CURVE_PREFIX = "curve."
OUTCOME_PREFIX = "outcome."


def record_train(context: StageContext) -> None:
    """Record the curves and outcomes of `Case.train`; in float64 only its first `float64_train_steps` steps."""
    curves: dict[str, list[float]] = {}

    def record(name: str, value: Any) -> None:
        curves.setdefault(name, []).append(float(value))
        if name == "loss" and len(curves[name]) % 50 == 0:
            context.progress(f"step {len(curves[name])}, loss {curves[name][-1]:.4f}")

    steps = context.case.float64_train_steps if context.dtype == "float64" else None
    outcomes = context.case.train(context.framework, context.build_model(), record, steps)
    for name, points in curves.items():
        context.recording.add(CURVE_PREFIX + name, np.asarray(points))
    if steps is None:
        context.add(OUTCOME_PREFIX.removesuffix("."), dict(outcomes))
