"""Optimizers of MoCo v3's recipes: LARS (You et al., arXiv 1708.03888) for ResNets, AdamW for ViTs, SGD for probes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import paddle
from paddle import Tensor, _C_ops
from paddle.optimizer import Optimizer

OPTIMIZERS = ("lars", "adamw", "sgd")


def euclidean_norm(tensor: Tensor) -> Tensor:
    """Return the root of the sum of squares of all elements, a scalar."""
    # diff: on a CPU paddle.linalg.norm adds one square after the other: 0.5 % too small in float32 for 8 million
    # elements, and 30 times as slow as the operator of paddle's own gradient clipping (benchmarks/norms.py).
    return _C_ops.squared_l2_norm(tensor).sqrt().reshape([])


@paddle.no_grad()
def clip_gradients(parameters: Iterable[Tensor], largest: float) -> None:
    """Scale all gradients together where their norm exceeds `largest`, by torch's rule: largest / (norm + 1e-6)."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = euclidean_norm(paddle.stack([euclidean_norm(gradient) for gradient in gradients]))
    factor = (largest / (norm + 1e-6)).clip(max=1.0)
    for gradient in gradients:
        gradient.multiply_(factor)


class LARS(Optimizer):
    """Momentum SGD whose step is rescaled, tensor by tensor, to the size of the weights.

    For parameters of more than one dimension the gradient is `g + weight_decay * w`, times
    `trust_coefficient * |w| / |g + weight_decay * w|`; biases and norms have neither decay nor rescaling. The momentum
    buffer holds the scaled gradient, and the learning rate multiplies outside it.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        learning_rate: float,
        weight_decay: float = 0.0,
        momentum: float = 0.9,
        trust_coefficient: float = 0.001,
    ) -> None:
        # diff: the decay is not handed to paddle's base class, which would add it to every gradient.
        super().__init__(learning_rate, parameters=list(parameters))
        self.type = "lars"
        self._lars_weight_decay = weight_decay
        self._lars_momentum = momentum
        self._trust_coefficient = trust_coefficient

    def _create_accumulators(self, block: object, parameters: list[Tensor]) -> None:
        for parameter in parameters:
            self._add_accumulator("mu", parameter)

    # diff: paddle's base class has the loop over the parameters and calls this for each that has a gradient.
    @paddle.no_grad()
    def _append_optimize_op(self, block: object, param_and_grad: tuple[Tensor, Tensor]) -> None:
        parameter, gradient = param_and_grad
        # In place wherever that rounds the same: new memory for a large tensor costs more than computing with it.
        if parameter.ndim > 1:
            gradient = (parameter * self._lars_weight_decay).add_(gradient)
            weight_norm, gradient_norm = euclidean_norm(parameter), euclidean_norm(gradient)
            trust_ratio = self._trust_coefficient * weight_norm / gradient_norm
            # A weight or a gradient of zero gives no scale: the step is left as it is.
            trust_ratio = paddle.where(
                (weight_norm > 0) & (gradient_norm > 0), trust_ratio, paddle.ones_like(trust_ratio)
            )
            gradient.multiply_(trust_ratio)
        momentum_buffer = self._get_accumulator("mu", parameter)
        momentum_buffer.scale_(self._lars_momentum).add_(gradient)
        parameter.subtract_(momentum_buffer * self.get_lr())


def build_optimizer(
    name: str,
    parameters: Iterable[Tensor],
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
    # diff: paddle's kernels keep rate, betas, eps, decay and momentum in float32, whatever the parameters' dtype.
    groups: list[Any] = parameters
    if not decays_all:
        groups = [
            {"params": [parameter for parameter in parameters if parameter.ndim in (2, 4)]},
            {"params": [parameter for parameter in parameters if parameter.ndim not in (2, 4)], "weight_decay": 0.0},
        ]
    if name == "adamw":
        return paddle.optimizer.AdamW(learning_rate, parameters=groups, weight_decay=weight_decay)
    if name == "sgd":
        # diff: paddle's SGD has no momentum; its Momentum is torch's SGD with momentum and no dampening.
        return paddle.optimizer.Momentum(learning_rate, momentum, parameters=groups, weight_decay=weight_decay)
    raise ValueError(f"no optimizer is called {name!r}; there are {', '.join(OPTIMIZERS)}")
