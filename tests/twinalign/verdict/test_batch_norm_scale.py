"""A rounding that all batch norms of a fresh network make alike is allowed in float32, to that extent alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign.verdict import compare_arrays
from twinalign.verdict.case_allowances import allowances_for


def test_one_rounding_of_many_batch_norms_alike_adds_up_and_is_allowed_to_that_extent_alone() -> None:
    truth = np.random.default_rng(0).standard_normal(4096)
    reference = truth.astype(np.float32)
    metadata = {"layer_classes": {"paddle.nn.layer.norm.BatchNorm2D": {"count": 50, "bases": []}}}
    allowances = allowances_for("forward", metadata, {})

    def judged(factor: float, high: float = 1.0, **options: Any) -> Any:
        port = {"y": (truth * factor).astype(np.float32)}
        return compare_arrays(
            {"y": reference}, port, reference64={"y": truth}, reproduced64={"y": truth * high}, **options
        ).tensors[0]

    layers = 1 + 2.0**-23 * 40  # forty layers, each a unit off in the same direction
    assert judged(layers).verdict == "diverged"
    found = judged(layers, allowances=allowances)
    assert (found.verdict, found.allowed) in {
        ("aligned", "paddle_batch_norm_scale"),
        ("rounding", "paddle_batch_norm_scale"),
    }
    assert "times the reference's own rounding, allowed as paddle_batch_norm_scale" in found.reason
    assert "the float64 runs agree" in found.reason
    assert judged(1 + 2.0**-23 * 60, allowances=allowances).verdict == "diverged"
    # In float64 nothing of it is allowed.
    assert judged(layers, high=layers, allowances=allowances).verdict == "diverged"
    # A port's own normalisation has closed the gap, and is not excused.
    own = allowances_for("forward", {"layer_classes": {"mine.BatchNorm2D": {"count": 50, "bases": []}}}, {})
    assert judged(layers, allowances=own).verdict == "diverged"
