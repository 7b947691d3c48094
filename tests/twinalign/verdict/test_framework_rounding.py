"""Float32 that a framework computes worse, while float64 agrees: allowed where it is derived, and no further."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from twinalign.backends import backend_of_side
from twinalign.case_allowances import allowances_for
from twinalign.verdict import Comparison, compare_arrays

STEPS, RATE = 6, 1e-3
PORT_METADATA: dict[str, Any] = {"layer_classes": {}}


def adam_steps(framework: str, dtype: str, start: np.ndarray, kind: str = "Adam") -> dict[str, np.ndarray]:
    """The parameter and what is kept of it after every step of Adam, from gradients that float32 holds exactly."""
    gradients = np.random.default_rng(1).standard_normal((STEPS, *start.shape)).astype(np.float32).astype(dtype)
    found = {}
    if framework == "torch":
        parameter: Any = torch.nn.Parameter(torch.from_numpy(start.astype(dtype)))
        optimizer: Any = getattr(torch.optim, kind)([parameter], lr=RATE)
    else:
        parameter = paddle.create_parameter(list(start.shape), dtype=dtype)
        parameter.set_value(start.astype(dtype))
        optimizer = getattr(paddle.optimizer, kind)(RATE, parameters=[parameter])
    for step, gradient in enumerate(gradients):
        if framework == "torch":
            parameter.grad = torch.from_numpy(gradient.copy())
        else:
            (parameter * paddle.to_tensor(gradient)).sum().backward()
        optimizer.step()
        if framework == "paddle":
            optimizer.clear_grad(set_to_zero=False)
        found[f"step{step}.parameter.layer.bias"] = parameter.detach().numpy().copy()
        side = "ref" if framework == "torch" else "paddle"
        for quantity, average in backend_of_side(side).optimizer_averages(optimizer, parameter):
            found[f"step{step}.{quantity}.layer.bias"] = average.numpy().copy()
    return found


def judged(arrays: list[dict[str, np.ndarray]], stage: str = "backward") -> Comparison:
    reference, reproduced, reference64, reproduced64 = arrays
    return compare_arrays(
        reference,
        reproduced,
        reference64=reference64,
        reproduced64=reproduced64,
        allowances=[a for a in allowances_for(stage, PORT_METADATA, {}) if a != "paddle_long_sums"],
    )


PAIRS = [("torch", "float32"), ("paddle", "float32"), ("torch", "float64"), ("paddle", "float64")]


@pytest.fixture(scope="module")
def steps() -> list[dict[str, np.ndarray]]:
    return [adam_steps(framework, dtype, np.zeros((32, 2))) for framework, dtype in PAIRS]


@pytest.mark.parametrize("kind", ["NAdam", "RAdam"])
def test_betas_in_float32_are_no_alarm_in_float64(kind: str) -> None:
    arrays = [adam_steps(framework, dtype, np.ones((32, 2)), kind) for framework, dtype in PAIRS]
    found = judged(arrays)
    assert [(t.name, t.reason) for t in found.tensors if t.verdict == "diverged"] == []
    allowed = {tensor.name.split(".")[1]: tensor.allowed for tensor in found.tensors}
    assert allowed["moment1"] == "paddle_adam_first_moment"
    assert allowed["moment2"] == "paddle_adam_second_moment"
    # A beta that somebody wrote otherwise by a ten thousandth is far from that.
    for name in arrays[1]:
        if "moment2" in name:
            for at in (1, 3):
                arrays[at][name] = arrays[at][name] * (1 - 0.9991) / (1 - 0.999)
    assert judged(arrays).verdict == "diverged"


def test_adamax_keeps_averages_of_the_same_names_on_both_sides() -> None:
    first, second = (adam_steps(framework, "float64", np.ones((4, 2)), "Adamax") for framework in ("torch", "paddle"))
    assert list(first) == list(second)
    assert {name.split(".")[1] for name in first} == {"parameter", "moment1", "infinity_norm"}


def test_a_number_of_asgd_is_not_taken_for_a_velocity() -> None:
    assert {name.split(".")[1] for name in adam_steps("torch", "float64", np.ones((4, 2)), "ASGD")} == {"parameter"}


def test_a_parameter_that_begins_at_zero_under_adam_is_no_alarm(steps: list[dict[str, np.ndarray]]) -> None:
    found = judged(steps)
    assert found.verdict in ("aligned", "rounding"), [tensor.reason for tensor in found.tensors]
    assert "paddle_adam_bias_correction" in {tensor.allowed for tensor in found.tensors}


def test_it_is_an_alarm_without_the_allowance(steps: list[dict[str, np.ndarray]]) -> None:
    reference, reproduced, reference64, reproduced64 = steps
    found = compare_arrays(reference, reproduced, reference64=reference64, reproduced64=reproduced64)
    assert found.verdict == "diverged"


@pytest.mark.parametrize("share", [1e-4, 1e-3])
def test_a_larger_share_of_the_way_is_a_divergence(steps: list[dict[str, np.ndarray]], share: float) -> None:
    reference, reproduced, reference64, reproduced64 = steps
    spoiled = {name: array * np.float32(1 + share) for name, array in reproduced.items()}
    found = judged([reference, spoiled, reference64, reproduced64])
    assert found.verdict == "diverged"


def test_in_float64_nothing_of_it_is_allowed(steps: list[dict[str, np.ndarray]]) -> None:
    reference, reproduced, reference64, reproduced64 = steps
    spoiled = {name: array * (1 + 1e-5) for name, array in reproduced64.items()}
    assert judged([reference, reproduced, reference64, spoiled]).verdict == "diverged"


def long_sum(shape: tuple[int, ...], times: float, name: str = "step0.gradient.layer.bias") -> tuple[str, str | None]:
    """Verdict on a tensor whose port is so many times as far from the truth as the reference."""
    rng = np.random.default_rng(2)
    truth = rng.standard_normal(shape)
    errors = 2.0**-22 * rng.standard_normal(shape)
    arrays = [(truth * (1 + factor * errors)).astype(np.float32) for factor in (1.0, times)]
    found = compare_arrays(
        {name: arrays[0]},
        {name: arrays[1]},
        reference64={name: truth},
        reproduced64={name: truth},
        allowances=allowances_for("backward", PORT_METADATA, {}),
    ).tensors[0]
    return found.verdict, found.allowed


def test_sums_over_a_batch_may_be_added_one_after_the_other() -> None:
    assert long_sum((64,), 100) in {("aligned", "paddle_long_sums"), ("rounding", "paddle_long_sums")}
    assert long_sum((), 100, "step0.loss") in {("aligned", "paddle_long_sums"), ("rounding", "paddle_long_sums")}


@pytest.mark.parametrize(
    ("shape", "times", "name"),
    [
        ((64,), 1500, "step0.gradient.layer.bias"),  # as half precision is
        ((64, 8), 100, "step0.gradient.layer.weight"),  # a product of matrices adds in blocks in both frameworks
        ((8,), 100, "step0.gradient.layer.weight (projections)"),
    ],
)
def test_what_is_no_long_sum_or_off_by_more_diverges(shape: tuple[int, ...], times: float, name: str) -> None:
    assert long_sum(shape, times, name) == ("diverged", None)


def test_the_forward_stage_allows_neither() -> None:
    named = {item if isinstance(item, str) else item.id for item in allowances_for("forward", PORT_METADATA, {})}
    assert not named & {"paddle_long_sums", "paddle_adam_bias_correction"}


def test_paddle_adds_the_gradient_of_an_offset_one_after_the_other() -> None:
    """What the allowance is for: group norm's, over 32 768 positions, beside torch's, by the judge of float64."""
    generator = np.random.default_rng(3)
    x, upstream = (generator.standard_normal((2, 8, 128, 128)).astype(np.float32) + shift for shift in (0, 1))
    port, reference = paddle.nn.GroupNorm(4, 8), torch.nn.GroupNorm(4, 8)
    port(paddle.to_tensor(x)).backward(paddle.to_tensor(upstream))
    reference(torch.from_numpy(x)).backward(torch.from_numpy(upstream))
    exact = upstream.astype(np.float64).sum(axis=(0, 2, 3))
    own, theirs = (np.sqrt(np.mean((bias.grad.numpy() / exact - 1) ** 2)) for bias in (port.bias, reference.bias))
    assert own > 5 * theirs
