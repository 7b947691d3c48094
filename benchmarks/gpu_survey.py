"""Which of torch's functions a GPU computes otherwise in float64 than a CPU; for benchmarks/gpu.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def float64_survey() -> dict[str, Any]:
    """Functions that a GPU computes otherwise in float64 than a CPU by more than rounding.

    Returns `functions`, how many were tried, and `found`, {name: {"forward" or "gradient": relative difference}}.
    """
    generator = torch.Generator().manual_seed(0)
    images = 3 * torch.randn(4, 8, 9, 9, dtype=torch.float64, generator=generator)
    kernel = torch.randn(6, 8, 3, 3, dtype=torch.float64, generator=generator)
    names = "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_softmax logsigmoid mish relu relu6 "
    names += "selu silu softmax softmin softplus softshrink softsign tanh tanhshrink threshold normalize"
    more = {"threshold": (0.1, 0.3), "log_softmax": (1,), "softmax": (1,), "softmin": (1,)}
    functions: dict[str, Any] = {
        name: lambda x, name=name: getattr(F, name)(x, *more.get(name, ())) for name in names.split()
    }
    functions |= {
        name: lambda x, name=name: getattr(torch, name)(x.abs() + 0.1)
        for name in "exp log log1p sqrt rsqrt erf sin cos sigmoid lgamma digamma atan".split()
    }
    functions |= {
        "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
        "logsumexp": lambda x: torch.logsumexp(x, 1),
        "conv2d": lambda x: F.conv2d(x, kernel.to(x.device), padding=1),
        "conv_transpose2d": lambda x: F.conv_transpose2d(x, kernel.to(x.device).transpose(0, 1)),
        "matmul": lambda x: x @ x.transpose(-1, -2),
        "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
        "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
        "group_norm": lambda x: F.group_norm(x, 2),
        "instance_norm": lambda x: F.instance_norm(x),
        "local_response_norm": lambda x: F.local_response_norm(x, 3),
        "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 4),
        "lp_pool2d": lambda x: F.lp_pool2d(x, 2.0, 2),
        "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
        "cross_entropy": lambda x: F.cross_entropy(x, x.detach().argmax(1), label_smoothing=0.1),
        "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x.detach() ** 2),
        "bce": lambda x: F.binary_cross_entropy_with_logits(x, x.detach().sigmoid()),
        "gru": lambda x: _alike(nn.GRU(9, 5, batch_first=True), x)(x.flatten(0, 1))[0],
        "lstm": lambda x: _alike(nn.LSTM(9, 5, batch_first=True), x)(x.flatten(0, 1))[0],
    }
    for mode in ("nearest", "bilinear", "bicubic", "area"):
        corners = {"align_corners": False} if mode.startswith("bi") else {}
        functions[f"interpolate, {mode}"] = lambda x, mode=mode, corners=corners: F.interpolate(
            x, scale_factor=1.7, mode=mode, **corners
        )
        functions[f"interpolate, {mode}, size"] = lambda x, mode=mode, corners=corners: F.interpolate(
            x, size=(7, 20), mode=mode, **corners
        )
    for mode in ("bilinear", "nearest"):
        functions[f"grid_sample, {mode}"] = lambda x, mode=mode: F.grid_sample(
            x, torch.tanh(x[:, :2].permute(0, 2, 3, 1)), mode=mode, align_corners=False
        )
    found = {}
    for name, function in functions.items():
        values = {device: _with_gradient(function, images.to(device)) for device in ("cpu", "cuda")}
        parts = zip(("forward", "gradient"), values["cpu"], values["cuda"], strict=True)
        away = {part: float((one - other).norm() / one.norm()) for part, one, other in parts}
        if max(away.values()) > 1e-12:
            found[name] = away
    return {"functions": len(functions), "found": found}


def _alike(layer: Any, x: Any) -> Any:
    """The layer with the same weights whenever it is made."""
    generator = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator).to(x)
    return layer


def _with_gradient(function: Any, x: Any) -> tuple[Any, Any]:
    x = x.clone().requires_grad_()
    y = function(x)
    y.backward(torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype, device=y.device).reshape(y.shape))
    return y.detach().cpu(), x.grad.cpu()
