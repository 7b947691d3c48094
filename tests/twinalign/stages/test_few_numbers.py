"""Metrics of few numbers: the reference computes them again, as it does its losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from twinalign.backends import backend_of_side
from twinalign.case.definition import Case
from twinalign.case.moved_values import moved_at_random, whole_numbers_kept
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.recordings import Recording
from twinalign.sides import FRAMEWORK_OF_SIDE
from twinalign.stages.context import StageContext
from twinalign.stages.few_numbers import REPEATS, UNCHANGED
from twinalign.stages.metric import VARIATIONS, record_metric
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.stage_recordings import StageRecordings

INPUTS = np.random.default_rng(1).standard_normal((64, 6)).astype(np.float32)
WEIGHTS = np.random.default_rng(2).standard_normal((6, 40)).astype(np.float32)


class Evaluated(Case):
    """A mean, which rounding moves, beside a count, which it does not, and many numbers, which are not repeated."""

    name = "evaluated"

    def __init__(self, counts_alone: bool = False) -> None:
        super().__init__()
        self.counts_alone, self.calls = counts_alone, 0

    def evaluate(self, model: Any, framework: str, dtype: str) -> dict[str, Any]:
        self.calls += 1
        side = "ref" if framework == "torch" else "paddle"
        outputs = model(backend_of_side(side).to_tensor(INPUTS, dtype, "cpu"))
        counted = {"above": float((outputs > 10.0).sum())}
        return counted if self.counts_alone else {**counted, "error": (outputs**2).mean(), "many": outputs}


def model_of(side: str, dtype: str) -> Any:
    if side == "ref":
        import torch

        model = torch.nn.Linear(6, 40, bias=False)
        model.weight.data = torch.from_numpy(WEIGHTS.T.copy()).to(getattr(torch, dtype))
        return model
    import paddle

    layer = paddle.nn.Linear(6, 40, bias_attr=False)
    layer.weight.set_value(paddle.to_tensor(WEIGHTS))
    return layer


def recorded(case: Case, side: str = "ref", dtype: str = "float32") -> Recording:
    context = StageContext(
        case=case,
        framework=FRAMEWORK_OF_SIDE[side],
        backend=backend_of_side(side),
        dtype=dtype,
        device="cpu",
        build_model=lambda: model_of(side, dtype),
        canonical=CanonicalNames({}),
        progress=lambda text: None,
    )
    record_metric(context)
    return context.recording


def test_what_rounding_moves_is_repeated_by_the_reference() -> None:
    case = Evaluated()
    found = recorded(case)
    assert case.calls == 1 + REPEATS
    repeats = found.metadata["repeats"]
    assert repeats.keys() == {"above", "error"}
    error = float(found.arrays["error"])
    assert len({value for (value,) in repeats["error"]} | {error}) > 2
    np.testing.assert_allclose(repeats["error"], error, rtol=1e-5)


@pytest.mark.parametrize(("side", "dtype", "more"), [("ref", "float64", VARIATIONS), ("paddle", "float32", 0)])
def test_neither_the_port_nor_float64_is_repeated(side: str, dtype: str, more: int) -> None:
    """float64 is measured with other weights as well."""
    case = Evaluated()
    assert "repeats" not in recorded(case, side, dtype).metadata
    assert case.calls == 1 + more


def test_counts_are_repeated_less_often() -> None:
    case = Evaluated(counts_alone=True)
    assert recorded(case).metadata["repeats"] == {"above": [[float((INPUTS @ WEIGHTS > 10.0).sum())]] * UNCHANGED}
    assert case.calls == 1 + UNCHANGED


def test_a_metric_that_the_reference_rounds_by_luck_is_no_fault() -> None:
    """Its own error is nothing here; those of its repeats say what is to be expected."""
    reference, high, port = (recorded(Evaluated(), side, dtype) for side, dtype in
                             (("ref", "float32"), ("ref", "float64"), ("paddle", "float32")))  # fmt: skip
    lucky = np.float32(high.arrays["error"])
    step = np.spacing(lucky)
    reference.arrays["error"] = np.asarray(lucky)
    several = [[lucky + times * step] for times in (3, -2, 4, -3)]
    # Long sums in paddle's order may have some 300 steps of rounding where the reference's own is half a step.
    for repeats, apart, verdict in ((several, 12, "rounding"), (several, 5000, "diverged"), ([], 1000, "diverged")):
        port.arrays["error"] = np.asarray(lucky + apart * step)
        reference.metadata["repeats"] = {"error": [[float(value)] for (value,) in repeats]}
        sides = {("ref", "float32"): reference, ("paddle", "float32"): port, ("ref", "float64"): high}
        found = compare_stage("metric", StageRecordings({**sides, ("paddle", "float64"): high}), {})
        assert {one.name: one.verdict for one in found.tensors}["error"] == verdict


def test_whole_numbers_among_inputs_do_not_move() -> None:
    """A target of a binary cross-entropy that is more than 1 by one unit in the last place would raise."""
    arrays = {
        "labels": np.array([0.0, 1.0, 1.0], np.float32),
        "soft": np.array([0.3, 1.0, np.inf], np.float32),
        "ids": np.array([3, 4]),
    }
    moved = whole_numbers_kept(moved_at_random(arrays, 0), arrays)
    assert np.array_equal(moved["labels"], arrays["labels"])
    assert np.array_equal(moved["ids"], arrays["ids"])
    assert moved["soft"][0] != arrays["soft"][0]
    assert np.array_equal(moved["soft"][1:], arrays["soft"][1:])
