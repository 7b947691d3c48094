"""The share of elements that torch and paddle compute bit-equal, layer by layer, in float32 and float64.

`twinalign verify` takes a port that equals its reference to the last bit for a copy, if the model has a layer that
rounds differently in the two frameworks; these measurements justify that.

    OMP_NUM_THREADS=1 python benchmarks/bit_equality.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as P
import torch
import torch.nn.functional as T

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((16, 64, 8, 8))
ROWS = IMAGES.reshape(-1, 64)
SQUARE = RNG.standard_normal((64, 64))
KERNEL = RNG.standard_normal((32, 64, 3, 3))
MEAN, VARIANCE = np.full(64, 0.3), np.full(64, 2.3)

Layer = Callable[[Any, Callable[[np.ndarray], Any]], Any]
LAYERS: dict[str, tuple[Layer, Layer, np.ndarray]] = {
    "linear and ReLU": (
        lambda x, t: T.relu(x @ t(SQUARE)),
        lambda x, t: P.relu(x @ t(SQUARE)),
        ROWS,
    ),
    "convolution": (lambda x, t: T.conv2d(x, t(KERNEL)), lambda x, t: P.conv2d(x, t(KERNEL)), IMAGES),
    "GELU": (lambda x, t: T.gelu(x), lambda x, t: P.gelu(x), IMAGES),
    "SiLU": (lambda x, t: T.silu(x), lambda x, t: P.silu(x), IMAGES),
    "sigmoid": (lambda x, t: T.sigmoid(x), lambda x, t: P.sigmoid(x), IMAGES),
    "tanh": (lambda x, t: torch.tanh(x), lambda x, t: paddle.tanh(x), IMAGES),
    "softmax": (lambda x, t: T.softmax(x, -1), lambda x, t: P.softmax(x, -1), ROWS),
    "log-softmax": (lambda x, t: T.log_softmax(x, -1), lambda x, t: P.log_softmax(x, -1), ROWS),
    "layer norm": (lambda x, t: T.layer_norm(x, (64,)), lambda x, t: P.layer_norm(x, [64]), ROWS),
    "batch norm, evaluation": (
        lambda x, t: T.batch_norm(x, t(MEAN), t(VARIANCE)),
        lambda x, t: P.batch_norm(x, t(MEAN), t(VARIANCE), weight=t(np.ones(64)), bias=t(np.zeros(64))),
        IMAGES,
    ),
    "batch norm, training": (
        lambda x, t: T.batch_norm(x, None, None, training=True),
        lambda x, t: P.batch_norm(x, t(MEAN), t(VARIANCE), weight=t(np.ones(64)), bias=t(np.zeros(64)), training=True),
        IMAGES,
    ),
}


def share(name: str, dtype: str) -> float:
    """Share of bit-equal elements of one layer's output."""
    in_torch, in_paddle, array = LAYERS[name]
    low = array.astype(np.float32)  # the same numbers in both precisions

    def torch_tensor(values: np.ndarray) -> Any:
        return torch.tensor(values.astype(np.float32).astype(dtype))

    def paddle_tensor(values: np.ndarray) -> Any:
        return paddle.to_tensor(values.astype(np.float32).astype(dtype))

    reference = in_torch(torch_tensor(low), torch_tensor).numpy()
    reproduced = in_paddle(paddle_tensor(low), paddle_tensor).numpy()
    return float((reference == reproduced).mean())


def main() -> None:
    print(f"{'layer':<24} {'float32':>8} {'float64':>8}")
    for name in LAYERS:
        print(f"{name:<24} {share(name, 'float32'):>8.3f} {share(name, 'float64'):>8.3f}")


if __name__ == "__main__":
    main()
