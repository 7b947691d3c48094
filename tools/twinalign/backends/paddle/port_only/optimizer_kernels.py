"""Optimizer kernels of paddle whose coefficients are C++ floats: in float64 their formulas with the port's own numbers.

`1 - beta2` of a float32 beta2 = 0.999 is off by 1e-5 of itself, and an update that is divided by the size of its
gradient passes that on to the weights. A formula takes what its kernel takes and changes what it changes; the powers of
the betas that the kernel's step counts by stay the kernel's.

- `momentum_`: velocity = mu32 * velocity + gradient + decay32 * parameter. This is linear in both, and corrected.
- `adamw_`: the decay; the rest is exact.
- `adadelta_`, `adamax_`, `rmsprop_`, `lamb_`: all coefficients, and epsilon.
- `nadam_`: those, and the decay of the momentum with its products.
- `radam_`: those, and the length of the average, 2 / (1 - beta2) - 1, of which the rectification is made: an update is
  off by 6e-6 of itself with beta2 = 0.999, and by 8e-5 with 0.9999.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle


def float32_error(value: float) -> float:
    """By how much a number is more than what a kernel keeps of it."""
    return value - float(np.float32(value))


def _steps(power: Any, beta: float) -> int:
    """Which step it is, of the power that the kernel counts by: for `nadam_` and `radam_` once it has counted."""
    return round(math.log(float(power.flatten()[0])) / math.log(beta)) if 0 < beta < 1 else 1


def _momentum(kernel: Callable[..., Any], parameter: Any, gradient: Any, velocity: Any, rate: Any, *rest: Any) -> Any:
    _, momentum, nesterov, regularization, decay, *_ = rest
    error = float32_error(momentum)
    of_gradient = parameter * (float32_error(decay) if regularization == "l2_decay" else 0.0)
    of_velocity = velocity * error + of_gradient
    found = kernel(parameter, gradient, velocity, rate, *rest)
    of_step = of_gradient + velocity * error + of_velocity * momentum if nesterov else of_velocity
    velocity.set_value(velocity + of_velocity)
    parameter.set_value(parameter - rate * of_step)
    return found


def _adamw(kernel: Callable[..., Any], parameter: Any, gradient: Any, rate: Any, *rest: Any) -> Any:
    decay, decays = rest[11:13]
    if decays:
        parameter.set_value(parameter * (1 - rate * decay))
    return kernel(parameter, gradient, rate, *rest[:12], False, *rest[13:])


def _adadelta(kernel: Callable[..., Any], parameter: Any, gradient: Any, *rest: Any) -> Any:
    squares, updates, rate, _, rho, epsilon, *_ = rest
    squares.set_value(rho * squares + (1 - rho) * gradient * gradient)
    update = gradient * ((updates + epsilon) / (squares + epsilon)).sqrt()
    updates.set_value(rho * updates + (1 - rho) * update * update)
    parameter.set_value(parameter - rate * update)
    return parameter, squares, updates, None


def _adamax(kernel: Callable[..., Any], parameter: Any, gradient: Any, *rest: Any) -> Any:
    rate, first, largest, power, _, beta1, beta2, epsilon, *_ = rest
    step = _steps(power, beta1)
    first.set_value(beta1 * first + (1 - beta1) * gradient)
    largest.set_value(paddle.maximum(gradient.abs(), beta2 * largest + epsilon))
    parameter.set_value(parameter - rate / (1 - beta1**step) * first / largest)
    return parameter, first, largest, None


def _rmsprop(kernel: Callable[..., Any], parameter: Any, squares: Any, gradient: Any, *rest: Any) -> Any:
    velocity, rate, mean, _, epsilon, decay, momentum, centred, *_ = rest
    squares.set_value(decay * squares + (1 - decay) * gradient * gradient)
    variance = squares
    if centred:
        mean.set_value(decay * mean + (1 - decay) * gradient)
        variance = squares - mean * mean
    velocity.set_value(momentum * velocity + rate * gradient / (variance + epsilon).sqrt())
    parameter.set_value(parameter - velocity)
    return parameter, velocity, squares, mean, None


def _moments(first: Any, second: Any, before: Sequence[Any], gradient: Any, beta1: float, beta2: float) -> None:
    first.set_value(beta1 * before[1] + (1 - beta1) * gradient)
    second.set_value(beta2 * before[2] + (1 - beta2) * gradient * gradient)


def _nadam(kernel: Callable[..., Any], parameter: Any, gradient: Any, *rest: Any) -> Any:
    rate, _, power, _, first, second, _, beta1, beta2, epsilon, decay, *_ = rest
    before = [value.clone() for value in (parameter, first, second)]
    found = kernel(parameter, gradient, *rest)
    step = _steps(power, beta2)
    _moments(first, second, before, gradient, beta1, beta2)
    momenta = [beta1 * (1 - 0.5 * 0.96 ** (at * decay)) for at in range(1, step + 2)]
    so_far, next_too = math.prod(momenta[:-1]), math.prod(momenta)
    update = momenta[-1] / (1 - next_too) * first + (1 - momenta[-2]) / (1 - so_far) * gradient
    parameter.set_value(before[0] - rate * update / ((second / (1 - beta2**step)).sqrt() + epsilon))
    return found


def _radam(kernel: Callable[..., Any], parameter: Any, gradient: Any, *rest: Any) -> Any:
    rate, _, power, _, first, second, _, beta1, beta2, epsilon, *_ = rest
    before = [value.clone() for value in (parameter, first, second)]
    found = kernel(parameter, gradient, *rest)
    step = _steps(power, beta2)
    _moments(first, second, before, gradient, beta1, beta2)
    update, left = first / (1 - beta1**step), 1 - beta2**step
    whole = 2 / (1 - beta2) - 1
    length = whole - 2 * step * beta2**step / left
    if length > 5:  # equation 5 and algorithm 2 of Liu et al., 2020
        rectified = (length - 4) * (length - 2) * whole / ((whole - 4) * (whole - 2) * length)
        update = update * math.sqrt(rectified * left) / (second.sqrt() + epsilon)
    parameter.set_value(before[0] - rate * update)
    return found


def _lamb(kernel: Callable[..., Any], parameter: Any, gradient: Any, *rest: Any) -> Any:
    rate, first, second, *powers, _, _, decay, beta1, beta2, epsilon, always, _ = rest
    left = [1 - beta ** _steps(power, beta) for power, beta in zip(powers, (beta1, beta2), strict=True)]
    before = [value.clone() for value in (parameter, first, second)]
    found = kernel(parameter, gradient, *rest)
    _moments(first, second, before, gradient, beta1, beta2)
    update = first / left[0] / ((second / left[1]).sqrt() + epsilon) + decay * before[0]
    sizes = [float(value.square().sum().sqrt()) for value in (before[0], update)]
    trust = sizes[0] / sizes[1] if (decay or always) and all(sizes) else 1.0
    parameter.set_value(before[0] - rate * trust * update)
    return found


def _in_float64(formula: Callable[..., Any], kernel: Callable[..., Any], parameter: Any, *rest: Any) -> Any:
    if parameter.dtype != paddle.float64:
        return kernel(parameter, *rest)
    with paddle.no_grad():
        return formula(kernel, parameter, *rest)


_FORMULAS: dict[str, Callable[..., Any]] = {
    "momentum_": _momentum,
    "adamw_": _adamw,
    "adadelta_": _adadelta,
    "adamax_": _adamax,
    "rmsprop_": _rmsprop,
    "nadam_": _nadam,
    "radam_": _radam,
    "lamb_": _lamb,
}
OPTIMIZER_KERNELS = {name: functools.partial(_in_float64, formula) for name, formula in _FORMULAS.items()}
"""Name of a kernel -> `around(kernel, parameter, …)`, which is the kernel itself in other precisions."""
