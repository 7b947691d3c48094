"""Ports with one wrong line each, at places where lines are hard to try in the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class _Net(Case):
    """A layer between two others; `middle` makes it for either side."""

    def middle(self, framework: str) -> Any:
        raise NotImplementedError

    def reference(self) -> Any:
        from torch import nn

        return nn.Sequential(nn.Linear(6, 6), self.middle("torch"), nn.Linear(6, 6))

    def reproduced(self) -> Any:
        from paddle import nn

        return nn.Sequential(nn.Linear(6, 6), self.middle("paddle"), nn.Linear(6, 6))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((5, 4, 6), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs * outputs).mean()


class OwnBackward(_Net):
    """The backward of an autograd function of the port's own divides by another size."""

    def middle(self, framework: str) -> Any:
        if framework == "torch":
            import torch

            class Pull(torch.autograd.Function):
                @staticmethod
                def forward(ctx: Any, x: Any) -> Any:
                    ctx.save_for_backward(x)
                    return x.clone()

                @staticmethod
                def backward(ctx: Any, gradient: Any) -> Any:
                    (x,) = ctx.saved_tensors
                    factor = 0.5 / (x.shape[0] * x.shape[1])
                    return gradient + torch.tanh(x) * factor

            class Pulled(torch.nn.Module):
                def forward(self, x: Any) -> Any:
                    y = torch.tanh(x)
                    return Pull.apply(y * x)

            return Pulled()
        import paddle

        class PortPull(paddle.autograd.PyLayer):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x.clone()

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                (x,) = ctx.saved_tensor()
                factor = 0.5 / x.shape[0]
                return gradient + paddle.tanh(x) * factor

        class PortPulled(paddle.nn.Layer):
            def forward(self, x: Any) -> Any:
                y = paddle.tanh(x)
                return PortPull.apply(y * x)

        return PortPulled()


class EpsilonBesideTheRoot(_Net):
    """What is wrong changes less than numbers that paddle holds in float32 may."""

    def middle(self, framework: str) -> Any:
        if framework == "torch":
            import torch

            class Norm(torch.nn.Module):
                def __init__(self) -> None:
                    super().__init__()
                    self.eps = 1e-6

                def forward(self, x: Any) -> Any:
                    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

            return Norm()
        import paddle

        class PortNorm(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.eps = 1e-6

            def forward(self, x: Any) -> Any:
                return x / (paddle.sqrt(x.pow(2).mean(-1, keepdim=True)) + self.eps)

        return PortNorm()


class HiddenForCell(_Net):
    """The hidden state is kept as the state of the cell."""

    def middle(self, framework: str) -> Any:
        if framework == "torch":
            import torch

            class Steps(torch.nn.Module):
                def __init__(self) -> None:
                    super().__init__()
                    self.cells = torch.nn.ModuleList([torch.nn.LSTMCell(6, 6), torch.nn.LSTMCell(6, 6)])

                def forward(self, x: Any) -> Any:
                    h, c = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
                    seen = []
                    for t in range(x.shape[1]):
                        h, c = self.cells[0](x[:, t], (h, c))
                        h, c = self.cells[1](x[:, t], (h, c))
                        seen.append(h)
                    return torch.stack(seen, 1)

            return Steps()
        import paddle

        class PortSteps(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.cells = paddle.nn.LayerList([paddle.nn.LSTMCell(6, 6), paddle.nn.LSTMCell(6, 6)])

            def forward(self, x: Any) -> Any:
                h, c = paddle.zeros_like(x[:, 0]), paddle.zeros_like(x[:, 0])
                seen = []
                for t in range(x.shape[1]):
                    h, (_, c) = self.cells[0](x[:, t], (h, c))
                    h, (c, _) = self.cells[1](x[:, t], (h, c))
                    seen.append(h)
                return paddle.stack(seen, 1)

        return PortSteps()


class Slopes(_Net):
    """A table that the constructor makes begins at another exponent."""

    def middle(self, framework: str) -> Any:
        if framework == "torch":
            import torch

            class Biased(torch.nn.Module):
                def __init__(self, heads: int = 6) -> None:
                    super().__init__()
                    slopes = torch.tensor([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)])
                    self.register_buffer("slopes", slopes, persistent=False)

                def forward(self, x: Any) -> Any:
                    return torch.tanh(x) + self.slopes.to(x.dtype)

            return Biased()
        import paddle

        class PortBiased(paddle.nn.Layer):
            def __init__(self, heads: int = 6) -> None:
                super().__init__()
                self.slopes = paddle.to_tensor([2.0 ** (-8 * i / heads) for i in range(heads)])

            def forward(self, x: Any) -> Any:
                return paddle.tanh(x) + self.slopes.astype(x.dtype)

        return PortBiased()
