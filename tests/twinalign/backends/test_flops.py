"""Counted operations: both backends by one rule, against `torch.utils.flop_counter` and against shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from twinalign.backends import load_backend


def counted(framework: str, model: Any, *arrays: np.ndarray) -> dict[str, int]:
    backend = load_backend(framework)
    with backend.no_grad(), backend.counting_flops(model) as counts:
        model(*(backend.to_tensor(array, "float32", "cpu") for array in arrays))
    return counts


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


PAIRS = {
    "linear": (lambda nn: nn.Linear(5, 7), lambda nn: nn.Linear(5, 7), zeros(2, 3, 5)),
    "linear without bias": (
        lambda nn: nn.Linear(5, 7, bias=False),
        lambda nn: nn.Linear(5, 7, bias_attr=False),
        zeros(2, 5),
    ),
    "convolution": (
        lambda nn: nn.Conv2d(4, 6, 3, stride=2, groups=2),
        lambda nn: nn.Conv2D(4, 6, 3, stride=2, groups=2),
        zeros(2, 4, 9, 9),
    ),
    "depthwise": (lambda nn: nn.Conv2d(4, 4, 3, groups=4), lambda nn: nn.Conv2D(4, 4, 3, groups=4), zeros(1, 4, 8, 8)),
    "one dimension": (lambda nn: nn.Conv1d(4, 6, 3), lambda nn: nn.Conv1D(4, 6, 3), zeros(2, 4, 9)),
    "transposed": (lambda nn: nn.ConvTranspose2d(4, 6, 3), lambda nn: nn.Conv2DTranspose(4, 6, 3), zeros(2, 4, 5, 5)),
    "encoder": (
        lambda nn: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        lambda nn: nn.TransformerEncoderLayer(16, 4, 32),
        zeros(2, 7, 16),
    ),
    "no product": (lambda nn: nn.LayerNorm(5), lambda nn: nn.LayerNorm(5), zeros(2, 5)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_paddle_counts_as_torch_does(name: str) -> None:
    reference, port, array = PAIRS[name]
    ours, theirs = counted("paddle", port(paddle.nn), array), counted("torch", reference(torch.nn), array)
    assert ours.get("", 0) == theirs[""]
    assert (ours.get("", 0) > 0) == (name != "no product")


def test_own_code_and_layers_called_twice_count() -> None:
    class Model(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.dense = paddle.nn.Linear(6, 6, bias_attr=False)

        def forward(self, x: Any) -> Any:
            x = self.dense(self.dense(x))
            return paddle.einsum("bij,bkj->bik", x, x) @ x + x.matmul(x, transpose_y=True).matmul(x)

    counts = counted("paddle", Model(), zeros(2, 5, 6))
    dense, product = 2 * 2 * (2 * 5 * 6 * 6), 2 * 2 * 5 * 5 * 6
    assert counts == {"dense": dense, "": dense + 4 * product}


def test_functions_are_paddles_own_again() -> None:
    before = paddle._C_ops.matmul, paddle.Tensor.__matmul__
    counted("paddle", paddle.nn.Linear(2, 2), zeros(1, 2))
    assert (paddle._C_ops.matmul, paddle.Tensor.__matmul__) == before
