"""Which of paddle's operations lack a gradient of their gradient on CPUs, as docs/how-to/port-a-model.md lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")
F = paddle.nn.functional

WITHOUT: dict[str, Callable[[Any], Any]] = {
    "flatten": lambda x: x.flatten(1),
    "depthwise convolution": lambda x: paddle.nn.Conv2D(4, 4, 3, groups=4)(x),
    "transposed convolution": lambda x: paddle.nn.Conv2DTranspose(4, 4, 3)(x),
    "group norm": lambda x: paddle.nn.GroupNorm(2, 4)(x),
    "layer norm": lambda x: paddle.nn.LayerNorm(6)(x),
    "GELU": F.gelu,
    "PReLU": lambda x: paddle.nn.PReLU()(x),
    "softmax": F.softmax,
    "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "max pooling": lambda x: F.max_pool2d(x, 2),
    "einsum": lambda x: paddle.einsum("bchw,bdhw->bcd", x, x),
    "grid_sample": lambda x: F.grid_sample(x, paddle.zeros([2, 3, 3, 2])),
    "roll": lambda x: x.roll(1, 2),
    "norm": lambda x: x.norm(axis=1),
}
WITH: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape([2, -1]),
    "convolution": lambda x: paddle.nn.Conv2D(4, 4, 3)(x),
    "convolution in groups": lambda x: paddle.nn.Conv2D(4, 4, 3, groups=2)(x),
    "batch norm": lambda x: paddle.nn.BatchNorm2D(4)(x),
    "SiLU": F.silu,
    "average pooling": lambda x: F.avg_pool2d(x, 2),
}


def gradient_of_gradient(operation: Callable[[Any], Any]) -> Any:
    x = paddle.randn([2, 4, 6, 6])
    x.stop_gradient = False
    y = operation(x)
    (gradient,) = paddle.grad((y * y).sum(), [x], create_graph=True)
    (gradient * gradient).sum().backward()
    return x.grad


@pytest.mark.parametrize("name", WITHOUT)
def test_it_has_none(name: str) -> None:
    with pytest.raises(Exception, match=r"Unavailable|InvalidArgument|NotFound|Fatal"):
        gradient_of_gradient(WITHOUT[name])


@pytest.mark.parametrize("name", WITH)
def test_it_has_one(name: str) -> None:
    assert gradient_of_gradient(WITH[name]) is not None
