"""Initial distributions of MoCo v3's parameters (He et al., 2015; Glorot and Bengio, 2010; torch's own defaults).

Every layer of the models gets its distribution explicitly, even where it is the framework's default.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init


def linear(in_features: int, out_features: int, bias: bool = True) -> nn.Linear:
    """A Linear whose weight and bias are left to the functions below; torch does not draw them first."""
    layer = skip_init(nn.Linear, in_features, out_features, bias)
    assert isinstance(layer, nn.Linear)
    return layer


@torch.no_grad()
def uniform_(parameter: Tensor, bound: float) -> None:
    """Draw every value from the uniform distribution over (-`bound`, `bound`)."""
    nn.init.uniform_(parameter, -bound, bound)


@torch.no_grad()
def normal_(parameter: Tensor, std: float) -> None:
    """Draw every value from the normal distribution of mean 0 and standard deviation `std`."""
    nn.init.normal_(parameter, std=std)


@torch.no_grad()
def constant_(parameter: Tensor, value: float) -> None:
    """Set every value to `value`."""
    nn.init.constant_(parameter, value)


def xavier_uniform_linear_(layer: nn.Linear, matrices: int = 1) -> None:
    """Weight: Xavier uniform; bias: 0. A weight that stacks several `matrices` (q, k, v) is drawn as each alone."""
    fan_in, fan_out = layer.in_features, layer.out_features // matrices
    uniform_(layer.weight, math.sqrt(6 / (fan_in + fan_out)))
    if layer.bias is not None:
        constant_(layer.bias, 0)


def torch_default_(layer: nn.Linear | nn.Conv2d) -> None:
    """Weight and bias: uniform over ±1/√fan_in, torch's default for a Linear or a convolution."""
    fan_in = layer.in_features if isinstance(layer, nn.Linear) else math.prod(layer.weight.shape[1:])
    uniform_(layer.weight, 1 / math.sqrt(fan_in))
    if layer.bias is not None:
        uniform_(layer.bias, 1 / math.sqrt(fan_in))


def kaiming_normal_fan_out_(layer: nn.Conv2d) -> None:
    """Weight: normal with standard deviation √(2/fan_out), the ResNets' (fan_out counts every group)."""
    output_channels, _, *kernel = layer.weight.shape
    normal_(layer.weight, math.sqrt(2 / (output_channels * math.prod(kernel))))
