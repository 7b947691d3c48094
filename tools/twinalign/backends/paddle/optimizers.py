"""Optimizers of paddle: their parameters, rates, moving averages and settings."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle

from twinalign.backends.paddle.models import named_parameters
from twinalign.backends.paddle.tensors import values_of

_AVERAGES = {"moment1": "moment1", "moment2": "moment2", "velocity": "velocity", "mu": "velocity"}
_AVERAGES_OF_ADAMAX = {"moment": "moment1", "inf_norm": "infinity_norm"}


def held_parameters(optimizer: Any) -> list[Any]:
    given = getattr(optimizer, "_param_groups", None) or optimizer._parameter_list or []  # groups may be added later
    return [p for item in given for p in (item["params"] if isinstance(item, dict) else [item])]


def learning_rate(optimizer: Any, parameter: Any = None) -> float:
    return float(optimizer.get_lr()) * (rate_factor(optimizer) if parameter is None else _factor_of(parameter))


def rate_factor(optimizer: Any) -> float:
    return _factor_of(next(iter(held_parameters(optimizer)), None))


def _factor_of(parameter: Any) -> float:
    return float(getattr(parameter, "optimize_attr", {}).get("learning_rate", 1.0))


def set_learning_rate(optimizer: Any, rate: float) -> None:
    rate = rate / (rate_factor(optimizer) or 1.0)
    if isinstance(getattr(optimizer, "_learning_rate", None), paddle.optimizer.lr.LRScheduler):
        optimizer._learning_rate.last_lr = rate  # told that this is its last one
    else:
        optimizer.set_lr(rate)


def set_gradient(parameter: paddle.Tensor, array: np.ndarray) -> None:
    parameter.grad = paddle.to_tensor(np.array(array, order="C"), place=parameter.place).astype(parameter.dtype)


def optimizer_averages(optimizer: Any, parameter: paddle.Tensor) -> Iterator[tuple[str, paddle.Tensor]]:
    # Adagrad's sum of squares has the name of Adamax's first moment.
    shared = _AVERAGES | (_AVERAGES_OF_ADAMAX if "inf_norm" in optimizer._accumulators else {})
    for quantity, values in optimizer._accumulators.items():
        if quantity in shared and parameter.name in values and values[parameter.name].shape == parameter.shape:
            yield shared[quantity], values[parameter.name]


def optimizer_items(model: paddle.nn.Layer, optimizer: Any) -> Iterator[tuple[str, str, np.ndarray]]:
    for name, parameter in named_parameters(model).items():
        for quantity, average in optimizer_averages(optimizer, parameter):
            yield quantity, name, values_of(average)


def optimizer_facts(optimizer: Any) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    clipping = getattr(optimizer, "_grad_clip", None)
    for holder in (optimizer, getattr(optimizer, "regularization", None), clipping):
        for name, value in getattr(holder, "__dict__", {}).items():
            if isinstance(value, (bool, int, float)):
                numbers.setdefault(name.lstrip("_"), value)
    kind = type(optimizer)
    clip = {"clip": type(clipping).__name__} if clipping is not None else {}
    return {"class": f"{kind.__module__}.{kind.__qualname__}", **numbers, **clip}
