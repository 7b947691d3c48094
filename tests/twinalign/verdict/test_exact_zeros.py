"""A gradient of exact zeros on the reference's side: rounding of the port's is no divergence, anything else is."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.verdict.compare import compare_arrays

BIAS, WEIGHT = "step0.gradient.layer.bias", "step0.gradient.layer.weight"


def judged(low: float, high: float, *, weight: bool = True) -> tuple[str, str]:
    """Verdict and reason on a bias whose gradient is zero in the reference, and of these sizes in the port."""
    rng = np.random.default_rng(0)
    truth, zeros = rng.standard_normal((64, 8)), rng.standard_normal(8)
    noisy = [(truth * (1 + 1e-7 * rng.standard_normal(truth.shape))).astype(np.float32) for _ in range(2)]
    recordings = [{BIAS: np.zeros(8, np.float32)}, {BIAS: (low * zeros).astype(np.float32)}]
    doubles = [{BIAS: np.zeros(8)}, {BIAS: high * zeros}]
    if weight:
        for one, two, array in zip(recordings, doubles, noisy, strict=True):
            one[WEIGHT], two[WEIGHT] = array, truth
    found = compare_arrays(*recordings, reference64=doubles[0], reproduced64=doubles[1])
    tensor = next(tensor for tensor in found.tensors if tensor.name == BIAS)
    return tensor.verdict, tensor.reason


@pytest.mark.parametrize("high", [0.0, 1e-19])
def test_what_cancels_to_rounding_in_the_port_alone_is_no_divergence(high: float) -> None:
    assert judged(1e-9, high)[0] in ("aligned", "rounding")


@pytest.mark.parametrize(("low", "high"), [(1e-3, 1e-3), (1e-6, 1e-6), (1e-3, 1e-14)])
def test_a_gradient_that_is_not_zero_is_a_divergence(low: float, high: float) -> None:
    assert judged(low, high)[0] == "diverged"


def test_without_other_tensors_nothing_measures_it_and_the_reason_says_why() -> None:
    verdict, reason = judged(1e-9, 0.0, weight=False)
    assert verdict == "diverged"
    assert "where the reference has exactly zero in both precisions" in reason
    assert "nan" not in reason


def running_mean(share: float, other: float = 0.0) -> tuple[str, str]:
    """Verdict on a running mean that keeps a share of a bias which rounding has moved in the step before.

    `other` is by how much the port's differs besides.
    """
    rng = np.random.default_rng(1)
    moved = [1e-4 * rng.standard_normal(20) for _ in range(2)]
    mean, noise = rng.standard_normal(20), 1e-7 * rng.standard_normal(20)
    gradient, parameter, buffer = (
        f"step{at}.{what}"
        for at, what in ((0, "gradient.conv.bias"), (0, "parameter.conv.bias"), (1, "buffer.norm.running_mean"))
    )
    doubles = [
        {
            gradient: 1e-18 * rng.standard_normal(20),
            parameter: moved[side],
            buffer: mean + share * moved[side] + side * other * rng.standard_normal(20),
        }
        for side in (0, 1)
    ]
    singles = [{name: array.astype("f4") for name, array in side.items()} for side in doubles]
    for side in singles:
        side[gradient] = (1e-9 * rng.standard_normal(20)).astype("f4")
        side[parameter] = (1e-4 * rng.standard_normal(20)).astype("f4")
        side[buffer] += noise.astype("f4")
    found = compare_arrays(*singles, reference64=doubles[0], reproduced64=doubles[1])
    tensor = next(tensor for tensor in found.tensors if tensor.name == buffer)
    return tensor.verdict, tensor.reason


def test_a_running_mean_takes_over_what_rounding_has_made_of_a_bias() -> None:
    verdict, reason = running_mean(0.1)
    assert verdict in ("aligned", "rounding")
    assert reason.endswith("; without what rounding makes of conv.bias, whose gradient is zero in exact arithmetic")


@pytest.mark.parametrize(("share", "other"), [(0.1, 1e-5), (1.5, 0.0), (-0.5, 0.0)])
def test_a_running_mean_that_differs_otherwise_is_a_divergence(share: float, other: float) -> None:
    assert running_mean(share, other)[0] == "diverged"
