"""Linear and cubic interpolation, whose kernels compute the points between which they interpolate in float32.

They do so in a float64 run too, and once more in backward, so that weights are off by up to 2^-24 of a coordinate. A
float64 run gets the values and gradients of exact weights where the kernel's differ by no more than that; whatever
else a kernel does, such as an interpolation of another kind, stays as it is.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

KERNELS = {"linear_interp": 1, "bilinear_interp": 2, "bicubic_interp": 2, "trilinear_interp": 3}
"""Kernel -> axes along which it interpolates."""

_ROUNDED = 2.0**-21
"""A coordinate is the result of a few operations in float32, each off by 2^-24 of it; a weight changes at most 1.5
times as much. So a weight is off by at most this share of the axis's length."""


def exact_interpolation(axes: int, kernel: Callable[..., Any], x: Any, *rest: Any) -> Any:
    """What the kernel returns, in float64 with exact weights."""
    *tensors, layout, _, _, _, scales, method, corners, mode = rest
    if x.dtype != paddle.float64 or 0 in x.shape or any(tensor is not None for tensor in tensors):
        return kernel(x, *rest)
    first = 1 if layout[-1] == "C" else 2
    with paddle.no_grad():
        found = kernel(x, *rest)
        sizes = zip(x.shape[first:], found.shape[first:], scales or [None] * axes, strict=False)
        weights = [_weights(old, new, scale, method, corners, mode) for old, new, scale in sizes]
        exact = _interpolated(x, first, weights)
        is_exact = _differs_by_rounding(found, exact, x, weights)
    if not is_exact or not _has_these_gradients(lambda given: kernel(given, *rest), x, first, weights):
        return kernel(x, *rest)
    return _Exact.apply(x, exact, first, weights)


def _has_these_gradients(kernel: Callable[[Any], Any], x: Any, first: int, weights: Sequence[np.ndarray]) -> bool:
    """Whether the kernel's gradients differ from those of exact weights by rounding alone.

    They are seen now, with a gradient of any values: paddle's `grad` cannot run inside of another one's backward pass.
    """
    if x.stop_gradient:
        return True
    with paddle.enable_grad():
        given = x.detach()
        given.stop_gradient = False
        found = kernel(given)
        gradient = paddle.to_tensor(np.random.default_rng(0).standard_normal(found.shape), dtype="float64")
        (found,) = paddle.grad(found, given, gradient)
    transposed = [of_axis.T for of_axis in weights]
    return _differs_by_rounding(found, _interpolated(gradient, first, transposed), gradient, transposed)


class _Exact(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any, exact: Any, first: int, weights: Sequence[np.ndarray]) -> Any:
        ctx.first, ctx.transposed = first, [of_axis.T for of_axis in weights]
        return exact.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, None]:
        return _interpolated(gradient, ctx.first, ctx.transposed), None


def _interpolated(x: Any, first: int, weights: Sequence[np.ndarray]) -> Any:
    for axis, of_axis in enumerate(weights, first):
        by = paddle.to_tensor(of_axis, dtype="float64")
        x = paddle.matmul(x.moveaxis(axis, -1), by, transpose_y=True).moveaxis(-1, axis)
    return x


def _differs_by_rounding(found: Any, exact: Any, x: Any, weights: Sequence[np.ndarray]) -> bool:
    """Whether coordinates in float32 explain the difference."""
    longest = max(max(of_axis.shape) for of_axis in weights)
    # A rounded coordinate can bring in the next element, so that one more has a weight on either side.
    terms = float(np.prod([np.count_nonzero(of_axis, axis=1).max() + 2 for of_axis in weights]))
    limit = _ROUNDED * longest * terms * len(weights) * float(x.abs().max())
    return float((found - exact).abs().max()) <= limit


@functools.lru_cache(maxsize=32)
def _weights(old: int, new: int, scale: float | None, method: str, corners: bool, mode: int) -> np.ndarray:
    """Exact weights along one axis, float64 of shape [new, old]."""
    at, ratio = np.arange(new, dtype=np.float64), old / new if scale is None else 1.0 / scale
    if corners:
        source = at * ((old - 1) / max(new - 1, 1))
    else:
        source = at * ratio if mode == 1 and method != "bicubic" else (at + 0.5) * ratio - 0.5
    return _cubic(source, old) if method == "bicubic" else _linear(source, old)


def _linear(source: np.ndarray, old: int) -> np.ndarray:
    """Each point's weights: 1 at an element, falling to 0 at its neighbours; the edges are repeated."""
    return np.maximum(0.0, 1.0 - np.abs(np.clip(source, 0, old - 1)[:, None] - np.arange(old)))


def _cubic(source: np.ndarray, old: int) -> np.ndarray:
    """Weights of cubic convolution with a = -0.75 (Keys, 1981); the edges are repeated."""
    weights, low = np.zeros((len(source), old)), np.floor(source)
    for step in range(-1, 3):
        away = np.abs(source - low - step)
        near = (1.25 * away - 2.25) * away * away + 1.0
        far = ((-0.75 * away + 3.75) * away - 6.0) * away + 3.0
        element = np.clip(low.astype(int) + step, 0, old - 1)
        np.add.at(weights, (np.arange(len(source)), element), np.where(away <= 1.0, near, far))
    return weights
