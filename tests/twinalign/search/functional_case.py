"""A pair whose model is one module of functional code, and a fault in the middle of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


def torch_attention() -> Any:
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).chunk(3, -1)
            scores = torch.matmul(q, k.transpose(-2, -1)) / 8**0.5
            weights = torch.softmax(scores - 0.3 * scores.mean(-1, keepdim=True), -1)
            weights = weights / (1.0 + weights.sum(-2, keepdim=True))
            return self.proj(torch.matmul(weights, v))

    return Attention()


def paddle_attention(fault: str) -> Any:
    import paddle
    import paddle.nn.functional as F
    from paddle import nn

    class Attention(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).chunk(3, -1)
            scores = paddle.matmul(q, k.transpose([0, 2, 1])) / 8**0.5
            if fault == "bound":
                scores = scores + 0.01 * scores**3
            if fault == "changed":
                scores[:, 0] = 0.0
            weights = F.softmax(scores - 0.3 * scores.mean(-1, keepdim=True), -1)
            weights = weights / (1.0 + weights.sum(-2, keepdim=True))
            if fault == "returned":
                return self.proj(paddle.matmul(weights, v)) + 0.1 * x**3
            return self.proj(paddle.matmul(weights, v))

    return Attention()


class Functional(Case):
    name = "functional"
    fault = ""

    def reference(self) -> Any:
        return torch_attention()

    def reproduced(self) -> Any:
        return paddle_attention(self.fault)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 5, 8)).astype("float32")}


class Bound(Functional):
    fault = "bound"


class Changed(Functional):
    fault = "changed"


class Returned(Functional):
    fault = "returned"
