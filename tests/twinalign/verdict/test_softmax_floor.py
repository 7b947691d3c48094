"""Nearly one-hot attention: what the floor under paddle's softmax leaves of next to nothing is no alarm, faults are."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from twinalign.backends.paddle.port_only.kernels import kernels_called
from twinalign.verdict.case_allowances import allowances_for
from twinalign.verdict.compare import compare_arrays
from twinalign.verdict.results import Comparison

Arrays = dict[str, np.ndarray]
SCALE = 400.0
QUERY, VALUE = "step0.gradient.q.weight", "step0.gradient.v.weight"


def given(dtype: str) -> Arrays:
    rng = np.random.default_rng(2)
    found = {"x": 8 * rng.standard_normal((2, 5, 8)), **{name: 0.2 * rng.standard_normal((8, 8)) for name in "qkv"}}
    return {name: array.astype(np.float32).astype(dtype) for name, array in found.items()}


def gradients(framework: str, dtype: str, scale: float = SCALE) -> Arrays:
    library: Any = torch if framework == "torch" else paddle
    values = {name: library.to_tensor(a) if library is paddle else torch.tensor(a) for name, a in given(dtype).items()}
    for name in "qkv":
        if library is paddle:
            values[name].stop_gradient = False
        else:
            values[name].requires_grad_()
    q, k, v = (values["x"] @ values[name] for name in "qkv")
    scores = q @ (k.transpose(-2, -1) if library is torch else k.transpose([0, 2, 1])) * scale
    out = library.nn.functional.softmax(scores, -1) @ v
    (out * out).mean().backward()
    return {f"step0.gradient.{name}.weight": values[name].grad.numpy().copy() for name in "qkv"}


def recorded(scale: float = SCALE) -> tuple[list[Arrays], Any]:
    """Reference and port in float32, in float64, and the kernels that the port was seen to call."""
    with kernels_called() as called:
        pairs = [("torch", "float32"), ("paddle", "float32"), ("torch", "float64"), ("paddle", "float64")]
        return [gradients(*pair, scale) for pair in pairs], dict(called)


def judged(arrays: list[Arrays], kernels: Any) -> Comparison:
    reference, port, reference64, port64 = arrays
    allowances = allowances_for("backward", {"kernels": kernels}, {})
    return compare_arrays(reference, port, reference64=reference64, reproduced64=port64, allowances=allowances)


def verdicts(arrays: list[Arrays], kernels: Any) -> dict[str, str]:
    return {tensor.name: tensor.verdict for tensor in judged(arrays, kernels).tensors}


def in_numpy() -> np.ndarray:
    """The gradient of the queries' weight, by the formulas."""
    x, *weights = given("float64").values()
    q, k, v = (x @ weight for weight in weights)
    scores = q @ k.transpose(0, 2, 1) * SCALE
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = weights @ v
    of_weights = 2 * out / out.size @ v.transpose(0, 2, 1)
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True))
    return np.einsum("bni,bno->io", x, of_scores @ k * SCALE)


def test_the_reference_is_right_and_the_floor_is_no_alarm() -> None:
    arrays, kernels = recorded()
    truth = in_numpy()
    assert 0 < np.abs(truth).max() < 1e-30
    np.testing.assert_allclose(arrays[2][QUERY], truth, rtol=1e-6, atol=0)
    assert np.abs(arrays[3][QUERY]).max() > 1e-26  # paddle's
    found = judged(arrays, kernels)
    assert {tensor.verdict for tensor in found.tensors} <= {"aligned", "rounding"}
    query = next(tensor for tensor in found.tensors if tensor.name == QUERY)
    assert query.allowed == "paddle_softmax_floor"
    assert "of the greatest step0.gradient, allowed as paddle_softmax_floor" in query.reason


def test_it_is_allowed_only_where_a_weight_lies_on_the_floor() -> None:
    arrays, _ = recorded()
    assert verdicts(arrays, {})[QUERY] == "diverged"
    assert "softmax" not in recorded(scale=1e-3)[1]


@pytest.mark.parametrize("share", [1e-17, 1e-12])
def test_more_than_a_floor_leaves_is_a_divergence(share: float) -> None:
    arrays, kernels = recorded()
    more = share * np.abs(arrays[2][VALUE]).max()
    for at in (1, 3):
        arrays[at][QUERY] = arrays[at][QUERY] + np.asarray(more, arrays[at][QUERY].dtype)
    assert verdicts(arrays, kernels)[QUERY] == "diverged"


def test_a_gradient_that_the_port_does_not_compute_is_a_divergence() -> None:
    arrays, kernels = recorded()
    for at in (1, 3):
        arrays[at][QUERY] = arrays[at][QUERY] * 0
    assert verdicts(arrays, kernels)[QUERY] == "diverged"


def test_ordinary_gradients_are_judged_as_ever() -> None:
    arrays, kernels = recorded()
    arrays[3][VALUE] = arrays[3][VALUE] * (1 + 1e-6)
    assert verdicts(arrays, kernels)[VALUE] == "diverged"
