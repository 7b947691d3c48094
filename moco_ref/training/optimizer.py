"""Optimizers of MoCo v3's recipes: LARS (You et al., arXiv 1708.03888) for ResNets, AdamW for ViTs, SGD for probes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

OPTIMIZERS = ("lars", "adamw", "sgd")


class LARS(Optimizer):
    """Momentum SGD whose step is rescaled, tensor by tensor, to the size of the weights.

    For parameters of more than one dimension the gradient is `g + weight_decay * w`, times
    `trust_coefficient * |w| / |g + weight_decay * w|`; biases and norms have neither decay nor rescaling. The momentum
    buffer holds the scaled gradient, and the learning rate multiplies outside it.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        weight_decay: float = 0.0,
        momentum: float = 0.9,
        trust_coefficient: float = 0.001,
    ) -> None:
        defaults = {
            "lr": learning_rate,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "trust_coefficient": trust_coefficient,
        }
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict) -> None:
        gradient = parameter.grad
        if parameter.ndim > 1:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
            weight_norm, gradient_norm = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(gradient)
            trust_ratio = group["trust_coefficient"] * weight_norm / gradient_norm
            # A weight or a gradient of zero gives no scale: the step is left as it is.
            trust_ratio = torch.where((weight_norm > 0) & (gradient_norm > 0), trust_ratio, 1.0)
            gradient.mul_(trust_ratio)
        state = self.state[parameter]
        if "mu" not in state:
            state["mu"] = torch.zeros_like(parameter)
        momentum_buffer = state["mu"]
        momentum_buffer.mul_(group["momentum"]).add_(gradient)
        parameter.add_(momentum_buffer, alpha=-group["lr"])


def build_optimizer(
    name: str,
    parameters: Iterable[nn.Parameter],
    learning_rate: float,
    weight_decay: float,
    momentum: float = 0.9,
    decays_all: bool = True,
) -> Optimizer:
    """Build "lars", "adamw" (betas 0.9 and 0.999, eps 1e-8) or "sgd" with momentum.

    Args:
        name: of the optimizer.
        parameters: what it moves.
        learning_rate: the initial one.
        weight_decay: as each optimizer defines it.
        momentum: of LARS and SGD.
        decays_all: whether AdamW's and SGD's decay reaches every parameter; else only matrices and convolutions, and
            not biases, norms and the class token, as with timm's optimizers.

    Raises:
        ValueError: where there is no such optimizer.
    """
    parameters = list(parameters)
    if name == "lars":
        return LARS(parameters, learning_rate, weight_decay=weight_decay, momentum=momentum)
    groups: list[Any] = parameters
    if not decays_all:
        groups = [
            {"params": [parameter for parameter in parameters if parameter.ndim in (2, 4)]},
            {"params": [parameter for parameter in parameters if parameter.ndim not in (2, 4)], "weight_decay": 0.0},
        ]
    if name == "adamw":
        return torch.optim.AdamW(groups, learning_rate, weight_decay=weight_decay)
    if name == "sgd":
        return torch.optim.SGD(groups, learning_rate, momentum=momentum, weight_decay=weight_decay)
    raise ValueError(f"no optimizer is called {name!r}; there are {', '.join(OPTIMIZERS)}")
