"""Stage 06: real training; curves over steps, and the outcomes at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign.stages.context import StageContext

CURVE_PREFIX = "curve."
OUTCOME_PREFIX = "outcome."
REPEAT_PREFIX = "repeat."
"""Before the names of the reference's second training, from weights moved by one unit in the last place."""


def record_train(context: StageContext) -> None:
    """Record the curves and outcomes of `Case.train`; in float64 only its first `float64_train_steps` steps.

    The reference trains a second time, from weights moved by one unit in the last place of float32: how far the two
    part is what rounding alone does to this training, and the yardstick for the port. In float64 as well: there the
    port's optimizer, which keeps its scalars in float32, differs by as much.
    """
    steps = context.case.float64_train_steps if context.dtype == "float64" else None
    _train(context, context.build_model(), "", steps)
    if context.framework == "torch":
        model = context.build_model()
        context.backend.load_state_arrays(model, _moved_by_an_ulp(context.backend.state_arrays(model)))
        _train(context, model, REPEAT_PREFIX, steps)


def _moved_by_an_ulp(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every floating-point number at its upper neighbour in float32, in its own dtype."""
    return {
        name: np.nextafter(array.astype(np.float32), np.float32(np.inf)).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in state.items()
    }


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
