"""Optimizers of torch: their parameters, rates, moving averages and settings."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from twinalign.backends.torch.models import named_parameters
from twinalign.backends.torch.tensors import values_of

_AVERAGES = {
    "exp_avg": "moment1",
    "exp_avg_sq": "moment2",
    "exp_inf": "infinity_norm",
    "momentum_buffer": "velocity",
    "mu": "velocity",
}


def held_parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def learning_rate(optimizer: torch.optim.Optimizer, parameter: torch.Tensor | None = None) -> float:
    groups = optimizer.param_groups
    own = (group for group in groups if any(one is parameter for one in group["params"]))
    return float(next(own, groups[0])["lr"])


def rate_factor(optimizer: torch.optim.Optimizer) -> float:
    return 1.0


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    before = learning_rate(optimizer)
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * rate / before if before else rate


def set_gradient(parameter: torch.Tensor, array: np.ndarray) -> None:
    parameter.grad = torch.from_numpy(np.array(array, order="C")).to(parameter.device, parameter.dtype)


def optimizer_averages(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    for quantity, value in optimizer.state.get(parameter, {}).items():
        # ASGD has a number of the name that LARS's velocity has.
        if quantity in _AVERAGES and isinstance(value, torch.Tensor) and value.shape == parameter.shape:
            yield _AVERAGES[quantity], value


def optimizer_items(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str, np.ndarray]]:
    for name, parameter in named_parameters(model).items():
        for quantity, average in optimizer_averages(optimizer, parameter):
            yield quantity, name, values_of(average)


def optimizer_facts(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    numbers = {name: value for name, value in optimizer.defaults.items() if isinstance(value, (bool, int, float))}
    betas = optimizer.defaults.get("betas", ())
    kind = type(optimizer)
    return {"class": f"{kind.__module__}.{kind.__qualname__}", **numbers} | {
        f"beta{number}": float(beta) for number, beta in enumerate(betas, start=1)
    }
