"""Constants that paddle's kernels keep in float32: float64 runs get them exactly, and calls are noted.

The attributes of a kernel are C++ floats, in a float64 run too, so that a constant is off by up to 2^-24 of itself. An
optimizer that divides by the size of a gradient makes any multiple of that from it, and no bound on one tensor tells
how much. But these kernels are linear in their constant, so that a float64 run can be given the value that the port
wrote, and is then judged without any allowance. With `32` for a value as the kernel keeps it:

- `label_smooth`: labels * float32(1 - epsilon32) + prior * epsilon32, of labels that `one_hot` makes in float32.
- `batch_norm`: running = running + (1 - momentum32) * (batch - running), and the deviation sqrt(variance + epsilon32).
  With c**2 * epsilon a power of two, which float32 holds, batch norm of c * x with it is that of x with epsilon.
- `layer_norm`, `group_norm` and `instance_norm`: the same deviation, and the same power of two.
- `pool2d` and `pool3d` of kind `avg`: their gradients are those of an output times float32(1 / count).
- `elu`, `celu` and `selu` are those with alpha = 1 times numbers, `hardtanh` and `softshrink` come from `clip`.
- `huber_loss`, of `smooth_l1_loss` as well: that of x / delta with delta = 1, times delta**2.
- `pow` and `tensor ** number`: the exponent, where it is a number and no tensor.
- optimizers: their coefficients, see `optimizer_kernels`.
- linear and cubic interpolation: weights of points in float32, see `interpolation`.
- `softmax` and `cross_entropy_with_softmax`, on the CPU: no weight is below exp(-64) of the largest. This is only
  noted, for code may compare weights with each other; the verdict allows what it leaves of gradients.

The float32 run stays paddle's own, and the verdict allows it what the noted constants explain. The limits of clippings
by a norm are noted too: paddle divides by the norm, torch by the norm and 1e-6.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle

from twinalign.backends.paddle.port_only.interpolation import KERNELS, exact_interpolation
from twinalign.backends.paddle.port_only.optimizer_kernels import OPTIMIZER_KERNELS, float32_error

Called = dict[str, dict[str, set[float]]]
"""Kernel -> constant -> the values that it was called with."""

SOFTMAX_FLOOR = math.exp(-64)
"""No weight of a softmax is less of the largest, in the kernels for the CPU."""

_called: Called = {}


@contextlib.contextmanager
def kernels_called() -> Iterator[Called]:
    """Note which kernels with float32 constants are called inside the block; filled in while it lasts."""
    make_float64_exact()
    _called.clear()
    yield _called


def make_float64_exact() -> None:
    """Let every later call of these kernels in this process be noted, and be exact in float64."""
    for name, around in _AROUND.items():
        kernel = getattr(paddle._C_ops, name, None)
        if kernel is not None and not hasattr(kernel, "__wrapped__"):
            setattr(paddle._C_ops, name, functools.wraps(kernel)(functools.partial(_eagerly, around, kernel)))
    operator = paddle.Tensor.__pow__  # which calls its kernel by no name
    if not hasattr(operator, "__wrapped__"):
        paddle.Tensor.__pow__ = functools.wraps(operator)(lambda x, exponent: _eagerly(_power, operator, x, exponent))
    for kind in (paddle.nn.ClipGradByGlobalNorm, paddle.nn.ClipGradByNorm):
        if kind._dygraph_clip.__module__ != __name__:
            kind._dygraph_clip = _noting_limit(kind._dygraph_clip)


def _eagerly(around: Callable[..., Any], kernel: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """A program that is only traced (`paddle.jit.to_static`) has no values to correct."""
    return around(kernel, *arguments, **keywords) if paddle.in_dynamic_mode() else kernel(*arguments, **keywords)


def _note(kernel: str, **constants: float) -> None:
    noted = _called.setdefault(kernel, {})
    for name, value in constants.items():
        noted.setdefault(name, set()).add(float(value))


def _noting_limit(clip: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: Any, pairs: Any) -> Any:
        _note("clip_by_norm", limit=self.clip_norm)
        return clip(self, pairs)

    return noted


def _label_smooth(kernel: Callable[..., Any], label: Any, prior: Any, epsilon: float) -> Any:
    _note("label_smooth", epsilon=epsilon)
    if label.dtype != paddle.float64 and paddle.get_default_dtype() != "float64":
        return kernel(label, prior, epsilon)
    label = label.astype("float64")  # `one_hot` makes float32 in a float64 run too
    return label * (1 - epsilon) + (epsilon / label.shape[-1] if prior is None else prior * epsilon)


def _batch_norm(kernel: Callable[..., Any], x: Any, mean: Any, variance: Any, *rest: Any) -> Any:
    weight, bias, evaluating, momentum, epsilon, layout, fixed, *others = rest
    moves = not evaluating and not fixed
    _note("batch_norm", epsilon=epsilon, **({"momentum": momentum} if moves else {}))
    if x.dtype != paddle.float64 or not epsilon:
        return kernel(x, mean, variance, *rest)
    exact, scale = _power_of_two(epsilon)
    scaled = mean.detach() * scale, variance.detach() * scale**2
    found = kernel(x * scale, *scaled, weight, bias, evaluating, momentum, exact, layout, fixed, *others)
    if moves and momentum != 1:
        share = (1 - momentum) / (1 - momentum + float32_error(momentum))
        for statistic, new in ((mean, scaled[0] / scale), (variance, scaled[1] / scale**2)):
            statistic.set_value(statistic + (new - statistic) * share)
    return found


def _power(kernel: Callable[..., Any], x: Any, exponent: Any, *rest: Any, **keywords: Any) -> Any:
    is_number = isinstance(exponent, float) and math.isfinite(exponent)
    if x.dtype != paddle.float64 or not is_number or not float32_error(exponent) or any(keywords.values()):
        return kernel(x, exponent, *rest, **keywords)
    return paddle._C_ops.elementwise_pow(x, paddle.to_tensor(exponent, dtype="float64"))


def _normalisation(at: int, kernel: Callable[..., Any], x: Any, *rest: Any) -> Any:
    epsilon = rest[at]
    if x.dtype != paddle.float64 or not epsilon:
        return kernel(x, *rest)
    exact, scale = _power_of_two(epsilon)
    return kernel(x * scale, *rest[:at], exact, *rest[at + 1 :])


def _power_of_two(epsilon: float) -> tuple[float, float]:
    """The power of two next to epsilon, and the scale of an input of which it is the epsilon then."""
    exact = 2.0 ** round(math.log2(epsilon))
    return exact, math.sqrt(exact / epsilon)


class _ScaledGradient(paddle.autograd.PyLayer):
    """The same values, whose gradient is multiplied on its way back."""

    @staticmethod
    def forward(ctx: Any, x: Any, factor: Any) -> Any:
        ctx.save_for_backward(factor)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, None]:
        (factor,) = ctx.saved_tensor()
        return gradient * factor, None


def _pool(kernel: Callable[..., Any], x: Any, window: Any, *rest: Any) -> Any:
    found = kernel(x, window, *rest)
    stride, padding, ceiling, exclusive, layout, kind, *flags, adaptive, algorithm = rest
    if kind != "avg":
        return found
    _note("avg_pool")
    if x.dtype != paddle.float64 or found.stop_gradient or not _has_float32_reciprocal(kernel, len(window)):
        return found
    channels_last = layout[-1] == "C"
    with paddle.no_grad():
        if adaptive:
            sizes = (x.shape, found.shape) if not channels_last else (x.shape[:-1], found.shape[:-1])
            counts = _adaptive_counts(*(size[-len(layout) + 2 :] for size in sizes))
            counts = counts.unsqueeze(-1) if channels_last else counts
        else:
            area = math.prod(map(int, window))
            ones = paddle.ones_like(x[:1, ..., :1] if channels_last else x[:1, :1])
            inside = kernel(ones, window, stride, padding, ceiling, False, layout, kind, *flags, False, algorithm)
            counts = (inside * area).round() if exclusive else paddle.full_like(inside, area)
        exact = 1 / counts.numpy()  # by numpy: in a float64 run a cast to float32 may stay float64
        factor = paddle.to_tensor(exact / exact.astype(np.float32), dtype="float64")
    return _ScaledGradient.apply(found, factor)


def _has_float32_reciprocal(kernel: Callable[..., Any], dimensions: int) -> bool:
    """Whether its gradients are off; with paddle's accuracy-compatible kernels they are not."""
    with paddle.enable_grad():
        probe = paddle.ones([1, 1, *[3] * dimensions], "float64")
        probe.stop_gradient = False
        sizes = [3] * dimensions, [1] * dimensions, [0] * dimensions
        layout = {2: "NCHW", 3: "NCDHW"}[dimensions]
        pooled = kernel(probe, *sizes, False, True, layout, "avg", False, False, "EXPLICIT")
        (gradient,) = paddle.grad(pooled, probe)
    return float(gradient.flatten()[0]) != 1 / 3**dimensions


def _adaptive_counts(given: Sequence[int], made: Sequence[int]) -> Any:
    """Elements in each window of adaptive pooling, from floor(i n / m) to ceil((i + 1) n / m) of a dimension."""
    of_dimensions = [[-(-(i + 1) * n // m) - i * n // m for i in range(m)] for n, m in zip(given, made, strict=True)]
    return paddle.to_tensor(functools.reduce(np.multiply.outer, [np.array(sizes, float) for sizes in of_dimensions]))


def _exactly(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Around a kernel: `formula(kernel, x, *constants)` in float64, the kernel itself in other precisions."""

    def around(kernel: Callable[..., Any], x: Any, *constants: float) -> Any:
        return formula(kernel, x, *constants) if x.dtype == paddle.float64 else kernel(x, *constants)

    return around


def _selu(kernel: Callable[..., Any], x: Any, scale: float, alpha: float) -> Any:
    _note("selu")
    return kernel(x, scale, alpha) if x.dtype != paddle.float64 else paddle.nn.functional.elu(x, alpha) * scale


def _softmax(kernel: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    found = kernel(*arguments, **keywords)
    weights = found[0] if isinstance(found, tuple | list) else found
    judged = weights.dtype in (paddle.float32, paddle.float64) and weights.place.is_cpu_place()
    if "softmax" not in _called and weights.size and judged:
        # Of n weights the floor is at least a share of 1 / n, and other softmaxes give less than that.
        least, most = float(weights.detach().min()), SOFTMAX_FLOOR * 1.001
        if most / 1.002 / max(weights.shape) <= least <= most:
            _note("softmax", floor=SOFTMAX_FLOOR)
    return found


def _activation(name: str, kernel: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    _note(name)
    return kernel(*arguments, **keywords)


_AROUND: dict[str, Callable[..., Any]] = {
    "label_smooth": _label_smooth,
    **OPTIMIZER_KERNELS,
    "pow": _power,
    "batch_norm": _batch_norm,
    **{name: functools.partial(_normalisation, 2) for name in ("layer_norm", "group_norm", "instance_norm")},
    # paddle has none for float64 on the CPU.
    "clip_by_norm": _exactly(lambda kernel, x, limit: x * (limit / x.square().sum().sqrt().clip(min=limit))),
    "pool2d": _pool,
    "pool3d": _pool,
    "elu": _exactly(lambda kernel, x, alpha: paddle.where(x > 0, x, kernel(x, 1.0) * alpha)),
    "celu": _exactly(lambda kernel, x, alpha: paddle.nn.functional.elu(x / alpha) * alpha),
    "selu": _selu,
    "hardtanh": _exactly(lambda kernel, x, least, most: paddle.clip(x, least, most)),
    **dict.fromkeys(("softmax", "softmax_", "cross_entropy_with_softmax", "cross_entropy_with_softmax_"), _softmax),
    "huber_loss": _exactly(lambda kernel, x, label, delta: kernel(x / delta, label / delta, 1.0) * delta**2),
    "softshrink": _exactly(lambda kernel, x, bound: x - paddle.clip(x, -bound, bound)),
    **{name: functools.partial(exact_interpolation, axes) for name, axes in KERNELS.items()},
    **{name: functools.partial(_activation, name) for name in ("hardsigmoid", "hardswish")},
}
