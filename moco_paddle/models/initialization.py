"""Initial distributions of MoCo v3's parameters (He et al., 2015; Glorot and Bengio, 2010; torch's own defaults).

Every layer of the models gets its distribution explicitly, even where it is the framework's default.
"""

from __future__ import annotations

import math

import paddle
from paddle import Tensor, nn


def linear(in_features: int, out_features: int, bias: bool = True) -> nn.Linear:
    """A Linear whose weight and bias are left to the functions below; paddle does not draw them first."""
    # diff: paddle's layer draws its weight when it is made, as slowly as a second time here. A constant takes no time.
    undrawn = nn.initializer.Constant(0.0)
    return nn.Linear(in_features, out_features, weight_attr=undrawn, bias_attr=None if bias else False)


@paddle.no_grad()
def uniform_(parameter: Tensor, bound: float) -> None:
    """Draw every value from the uniform distribution over (-`bound`, `bound`)."""
    nn.initializer.Uniform(-bound, bound)(parameter)


@paddle.no_grad()
def normal_(parameter: Tensor, std: float) -> None:
    """Draw every value from the normal distribution of mean 0 and standard deviation `std`."""
    nn.initializer.Normal(std=std)(parameter)


@paddle.no_grad()
def constant_(parameter: Tensor, value: float) -> None:
    """Set every value to `value`."""
    nn.initializer.Constant(value)(parameter)


def xavier_uniform_linear_(layer: nn.Linear, matrices: int = 1) -> None:
    """Weight: Xavier uniform; bias: 0. A weight that stacks several `matrices` (q, k, v) is drawn as each alone."""
    # diff: a Linear weight is [in, out] here and [out, in] there, and the layer of paddle 2.6 does not store its sizes.
    fan_in, fan_out = layer.weight.shape[0], layer.weight.shape[1] // matrices
    uniform_(layer.weight, math.sqrt(6 / (fan_in + fan_out)))
    if layer.bias is not None:
        constant_(layer.bias, 0)


def torch_default_(layer: nn.Linear | nn.Conv2D) -> None:
    """Weight and bias: uniform over ±1/√fan_in, torch's default for a Linear or a convolution."""
    # diff: paddle's own default is Xavier uniform for a Linear, normal of √(2/fan_in) for a convolution, 0 for a bias.
    fan_in = layer.weight.shape[0] if isinstance(layer, nn.Linear) else math.prod(layer.weight.shape[1:])
    uniform_(layer.weight, 1 / math.sqrt(fan_in))
    if layer.bias is not None:
        uniform_(layer.bias, 1 / math.sqrt(fan_in))


def kaiming_normal_fan_out_(layer: nn.Conv2D) -> None:
    """Weight: normal with standard deviation √(2/fan_out), the ResNets' (fan_out counts every group)."""
    output_channels, _, *kernel = layer.weight.shape
    normal_(layer.weight, math.sqrt(2 / (output_channels * math.prod(kernel))))
