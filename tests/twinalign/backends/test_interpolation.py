"""Linear and cubic interpolation of paddle in float64, beside torch's; what is another interpolation stays another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle.nn import functional
from torch.nn import functional as theirs

from twinalign.backends.paddle.port_only.kernels import kernels_called

SHAPES = {"linear": (2, 3, 17), "bilinear": (2, 3, 17, 9), "bicubic": (2, 3, 17, 9), "trilinear": (1, 2, 7, 9, 5)}
HOW: list[dict[str, Any]] = [
    {"size": (11, 5, 8)},
    {"scale_factor": 1.7},
    {"scale_factor": (1.3, 0.6, 2.1)},
    {"scale_factor": 2},
]


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    with kernels_called():
        yield


def both(mode: str, how: dict[str, Any], options: dict[str, Any] | None = None) -> tuple[list[Any], list[Any]]:
    """Values and gradients of the input, paddle's first; `options` are those of the port alone, over those of both."""
    rng, shape = np.random.default_rng(0), SHAPES[mode]
    axes = len(shape) - 2
    how = {name: value[:axes] if isinstance(value, tuple) else value for name, value in how.items()}
    values = rng.standard_normal(shape)
    x, y = paddle.to_tensor(values, stop_gradient=False), torch.from_numpy(values).requires_grad_()
    of_port = {name: list(value) if isinstance(value, tuple) else value for name, value in how.items()}
    found = functional.interpolate(x, **{"mode": mode, **of_port, **(options or {})})
    expected = theirs.interpolate(y, mode=mode, **how)
    upstream = rng.standard_normal(expected.shape)
    found.backward(paddle.to_tensor(upstream))
    expected.backward(torch.from_numpy(upstream))
    return [found.numpy(), x.grad.numpy()], [expected.detach().numpy(), y.grad.numpy()]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("mode", SHAPES)
def test_values_and_gradients_are_those_of_exact_weights(mode: str, how: dict[str, Any], corners: bool) -> None:
    for mine, other in zip(*both(mode, {**how, "align_corners": corners}), strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-13)


def test_channels_may_come_last() -> None:
    values = np.random.default_rng(0).standard_normal((2, 17, 9, 3))
    x, y = paddle.to_tensor(values), torch.from_numpy(values).permute(0, 3, 1, 2)
    found = functional.interpolate(x, [11, 5], mode="bilinear", align_corners=True, data_format="NHWC")
    expected = theirs.interpolate(y, (11, 5), mode="bilinear", align_corners=True).permute(0, 2, 3, 1)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=1e-13)


def test_float32_is_left_as_it_is() -> None:
    x = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 17, 9)).astype("float32"))
    rest = [None, None, None, "NCHW", -1, 11, 5, [], "bilinear", True, 0]
    found = functional.interpolate(x, [11, 5], mode="bilinear", align_corners=True)
    np.testing.assert_array_equal(found.numpy(), paddle._C_ops.bilinear_interp.__wrapped__(x, *rest).numpy())


@pytest.mark.parametrize(
    "other",
    [
        {"mode": "bicubic"},
        {"mode": "nearest", "align_corners": False},
        {"align_corners": False},
        {"align_corners": False, "align_mode": 1},
    ],
)
def test_another_interpolation_is_not_made_the_reference_s(other: dict[str, Any]) -> None:
    for mine, expected in zip(*both("bilinear", {"size": (11, 5), "align_corners": True}, other), strict=True):
        assert np.abs(mine - expected).max() > 1e-2


def test_a_kernel_that_interpolates_otherwise_keeps_its_values() -> None:
    # To a size of one, paddle's kernel takes the first element, and torch the middle.
    (mine, gradient), _ = both("bilinear", {"size": (12, 1), "align_corners": False})
    values = np.random.default_rng(0).standard_normal(SHAPES["bilinear"])
    x = paddle.to_tensor(values, stop_gradient=False)
    rest = [None, None, None, "NCHW", -1, 12, 1, [], "bilinear", False, 0]
    plain = paddle._C_ops.bilinear_interp.__wrapped__(x, *rest)
    np.testing.assert_array_equal(mine, plain.numpy())
    assert np.isfinite(gradient).all()


def test_a_traced_program_runs_with_paddle_s_own_kernel() -> None:
    class Resized(paddle.nn.Layer):
        def forward(self, x: Any) -> Any:
            return functional.interpolate(x, [11, 5], mode="bilinear")

    x, layer = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 17, 9))), Resized()
    eager = layer(x).numpy()
    np.testing.assert_allclose(paddle.jit.to_static(layer, full_graph=True)(x).numpy(), eager, rtol=0, atol=1e-5)


def test_grad_goes_back_through_an_interpolation_inside_of_a_network() -> None:
    generator = np.random.default_rng(0)
    values, kernel = generator.standard_normal((2, 3, 5, 5)), generator.standard_normal((4, 3, 3, 3))
    x, weight = (paddle.to_tensor(array, stop_gradient=False) for array in (values, kernel))
    outputs = functional.conv2d(functional.interpolate(x, scale_factor=2.5, mode="bilinear"), weight)
    found = paddle.grad([outputs], [x, weight], [paddle.ones_like(outputs)])
    a, b = (torch.from_numpy(array).requires_grad_() for array in (values, kernel))
    theirs.conv2d(theirs.interpolate(a, scale_factor=2.5, mode="bilinear"), b).sum().backward()
    for gradient, expected in zip(found, (a.grad, b.grad), strict=True):
        assert expected is not None
        np.testing.assert_allclose(gradient.numpy(), expected.numpy(), rtol=1e-10)
