"""A port with functions of its own for torch's, one of which has a wrong line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from twinalign import Case


def smooth_l1(x: Any, y: Any, beta: float) -> Any:
    """Lacks the factor 0.5 of the square."""
    import paddle

    apart = paddle.abs(x - y)
    return paddle.where(apart < beta, apart * apart / beta, apart - 0.5 * beta).mean()


def gelu(x: Any) -> Any:
    """Has another digit in its constant."""
    return 0.5 * x * (1 + _bounded(math.sqrt(2 / math.pi) * (x + 0.44715 * x**3)))


def _bounded(x: Any) -> Any:
    import paddle

    return paddle.tanh(x)


def softplus(x: Any) -> Any:
    """Has several mistakes."""
    import paddle

    return paddle.log1p(paddle.exp(0.7 * x)).square() + paddle.nn.functional.relu(x - 0.5).square()


class OfLoss(Case):
    """The wrong function is called by the loss."""

    def reference(self) -> Any:
        from torch import nn

        return nn.Linear(6, 6)

    def reproduced(self) -> Any:
        import paddle

        return paddle.nn.Linear(6, 6)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: rng.standard_normal((4, 6), dtype="float32") for name in ("x", "y")}

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"])

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        if framework == "torch":
            from torch.nn import functional

            return functional.smooth_l1_loss(outputs, inputs["y"], beta=0.7)
        return smooth_l1(outputs, inputs["y"], 0.7)


class OfModel(Case):
    """The wrong function is called by the model."""

    wrong = staticmethod(gelu)

    def reference(self) -> Any:
        import torch
        from torch.nn import functional

        of_gelu = self.wrong is gelu

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = torch.nn.Linear(6, 6)

            def forward(self, x: Any) -> Any:
                h = self.first(x)
                return x + (functional.gelu(h, approximate="tanh") if of_gelu else functional.softplus(h))

        return Net()

    def reproduced(self) -> Any:
        import paddle

        wrong = self.wrong

        class Net(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.first = paddle.nn.Linear(6, 6)

            def forward(self, x: Any) -> Any:
                h = self.first(x)
                return x + wrong(h)

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 6), dtype="float32")}


class Hopeless(OfModel):
    """More than one edit away from what it stands for."""

    wrong = staticmethod(softplus)


class OfBlocks(OfModel):
    """Two blocks call the wrong function."""

    def reference(self) -> Any:
        import torch
        from torch.nn import functional

        class Block(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = torch.nn.Linear(6, 6)

            def forward(self, x: Any) -> Any:
                h = self.first(x)
                return x + functional.gelu(h, approximate="tanh")

        return torch.nn.Sequential(Block(), Block())

    def reproduced(self) -> Any:
        import paddle

        class Block(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.first = paddle.nn.Linear(6, 6)

            def forward(self, x: Any) -> Any:
                h = self.first(x)
                return x + gelu(h)

        return paddle.nn.Sequential(Block(), Block())
