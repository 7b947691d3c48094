"""Constants that paddle's kernels keep in float32: float64 runs get them exactly, and calls are noted.

The attributes of a kernel are C++ floats, in a float64 run too, so that a constant is off by up to 2^-24 of itself. An
optimizer that divides by the size of a gradient makes any multiple of that from it, and no bound on one tensor tells
how much. But these kernels are linear in their constant, so that a float64 run can be given the value that the port
wrote, and is then judged without any allowance. With `32` for a value as the kernel keeps it:

- `label_smooth`: labels * float32(1 - epsilon32) + prior * epsilon32, of labels that `one_hot` makes in float32.
- `momentum_`: velocity = mu32 * velocity + gradient + decay32 * parameter.
- `batch_norm`: running = running + (1 - momentum32) * (batch - running), and the deviation sqrt(variance + epsilon32).
  With c**2 * epsilon a power of two, which float32 holds, batch norm of c * x with it is that of x with epsilon.

The float32 run stays paddle's own, and the verdict allows it what the noted constants explain.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle

Called = dict[str, dict[str, set[float]]]
"""Kernel -> constant -> the values that it was called with."""

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
            setattr(paddle._C_ops, name, functools.wraps(kernel)(functools.partial(around, kernel)))


def _note(kernel: str, **constants: float) -> None:
    noted = _called.setdefault(kernel, {})
    for name, value in constants.items():
        noted.setdefault(name, set()).add(float(value))


def _float32_error(value: float) -> float:
    return value - float(np.float32(value))


def _label_smooth(kernel: Callable[..., Any], label: Any, prior: Any, epsilon: float) -> Any:
    _note("label_smooth", epsilon=epsilon)
    if label.dtype != paddle.float64 and paddle.get_default_dtype() != "float64":
        return kernel(label, prior, epsilon)
    label = label.astype("float64")  # `one_hot` makes float32 in a float64 run too
    return label * (1 - epsilon) + (epsilon / label.shape[-1] if prior is None else prior * epsilon)


def _momentum(kernel: Callable[..., Any], parameter: Any, gradient: Any, velocity: Any, rate: Any, *rest: Any) -> Any:
    _, momentum, nesterov, regularization, decay, *_ = rest
    if parameter.dtype != paddle.float64:
        return kernel(parameter, gradient, velocity, rate, *rest)
    with paddle.no_grad():
        error = _float32_error(momentum)
        of_gradient = parameter * (_float32_error(decay) if regularization == "l2_decay" else 0.0)
        of_velocity = velocity * error + of_gradient
        found = kernel(parameter, gradient, velocity, rate, *rest)
        of_step = of_gradient + velocity * error + of_velocity * momentum if nesterov else of_velocity
        velocity.set_value(velocity + of_velocity)
        parameter.set_value(parameter - rate * of_step)
    return found


def _batch_norm(kernel: Callable[..., Any], x: Any, mean: Any, variance: Any, *rest: Any) -> Any:
    weight, bias, evaluating, momentum, epsilon, layout, fixed, *others = rest
    moves = not evaluating and not fixed
    _note("batch_norm", epsilon=epsilon, **({"momentum": momentum} if moves else {}))
    if x.dtype != paddle.float64 or not epsilon:
        return kernel(x, mean, variance, *rest)
    exact = 2.0 ** round(math.log2(epsilon))
    scale = math.sqrt(exact / epsilon)
    scaled = mean.detach() * scale, variance.detach() * scale**2
    found = kernel(x * scale, *scaled, weight, bias, evaluating, momentum, exact, layout, fixed, *others)
    if moves and momentum != 1:
        share = (1 - momentum) / (1 - momentum + _float32_error(momentum))
        for statistic, new in ((mean, scaled[0] / scale), (variance, scaled[1] / scale**2)):
            statistic.set_value(statistic + (new - statistic) * share)
    return found


def _pool(kernel: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    if any(isinstance(argument, str) and argument == "avg" for argument in arguments):
        _note("avg_pool")
    return kernel(*arguments, **keywords)


def _activation(name: str, kernel: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    _note(name)
    return kernel(*arguments, **keywords)


_AROUND: dict[str, Callable[..., Any]] = {
    "label_smooth": _label_smooth,
    "momentum_": _momentum,
    "batch_norm": _batch_norm,
    "pool2d": _pool,
    "pool3d": _pool,
    **{name: functools.partial(_activation, name) for name in ("hardsigmoid", "hardswish", "selu")},
}
