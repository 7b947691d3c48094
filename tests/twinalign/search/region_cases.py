"""Pairs whose layers do not end at the same places: the reference's batch norm holds the activation that follows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class RightRegions(Case):
    """The port calls the activation behind its batch norm; both compute the same."""

    name = "regions"
    epsilon, activation = 1e-5, "Silu"

    def reference(self) -> Any:
        import torch
        from timm.layers import BatchNormAct2d

        class Block(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = torch.nn.Conv2d(4, 4, 3, padding=1, bias=False)
                self.bn = BatchNormAct2d(4, act_layer=torch.nn.SiLU)

            def forward(self, x: Any) -> Any:
                return x + self.bn(self.conv(x))

        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), Block(), Block(), BatchNormAct2d(4))

    def reproduced(self) -> Any:
        import paddle

        class Block(paddle.nn.Layer):
            def __init__(self, epsilon: float, activation: str) -> None:
                super().__init__()
                self.conv = paddle.nn.Conv2D(4, 4, 3, padding=1, bias_attr=False)
                self.bn = paddle.nn.BatchNorm2D(4, epsilon=epsilon)
                self.act = getattr(paddle.nn, activation)()

            def forward(self, x: Any) -> Any:
                return x + self.act(self.bn(self.conv(x)))

        blocks = Block(1e-5, "Silu"), Block(self.epsilon, self.activation)
        return paddle.nn.Sequential(paddle.nn.Conv2D(3, 4, 3), *blocks, paddle.nn.BatchNorm2D(4), paddle.nn.ReLU())

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": 4 * rng.standard_normal((2, 3, 9, 9)).astype("float32")}


class Wrong(RightRegions):
    """With another epsilon and another activation inside one region."""

    epsilon, activation = 1e-3, "ReLU6"


class Epsilons(RightRegions):
    """With another epsilon in every norm, so that no region agrees."""

    def reproduced(self) -> Any:
        import paddle

        made = super().reproduced()
        for layer in made.sublayers():
            if isinstance(layer, paddle.nn.BatchNorm2D):
                layer._epsilon = 1e-3
        return made


class Training(RightRegions):
    """In training mode, in which paddle's own running variance differs and nothing else."""

    train_mode = True


class Needless(Case):
    """The port leaves out a bias, which the instance norm behind takes out again, and has another epsilon there."""

    name = "needless"

    def reference(self) -> Any:
        from torch import nn

        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.Conv2d(4, 5, 3))

    def reproduced(self) -> Any:
        from paddle import nn

        class WithoutBias(nn.Conv2D):
            def forward(self, x: Any) -> Any:
                return nn.functional.conv2d(x, self.weight)

        norm = nn.InstanceNorm2D(4, epsilon=1e-3, weight_attr=False, bias_attr=False)
        return nn.Sequential(WithoutBias(3, 4, 3), norm, nn.Conv2D(4, 5, 3))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 3, 9, 9)).astype("float32")}


class Unexplained(Wrong):
    """And faults behind it that no cause explains, and no single edit, which must not make the others needless."""

    def reproduced(self) -> Any:
        import paddle

        made = super().reproduced()
        made.add_sublayer("5", _Waves(paddle))
        made.add_sublayer("6", _Waves(paddle))
        return made


def _Waves(paddle: Any) -> Any:  # noqa: N802
    class Waves(paddle.nn.Layer):
        def forward(self, x: Any) -> Any:
            # Torch has no such function, so the line cannot run there, and no single edit gives `x`.
            return 0.5 * x.flip(1) + paddle.stanh(37 * x)

    return Waves()


class OtherSize(Case):
    """Another epsilon, and a last layer of another size, so that the results of the whole cannot be compared."""

    name = "other size"

    def reference(self) -> Any:
        from torch import nn

        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.Conv2d(4, 5, 3))

    def reproduced(self) -> Any:
        from paddle import nn

        norm = nn.InstanceNorm2D(4, epsilon=1e-3, weight_attr=False, bias_attr=False)
        return nn.Sequential(nn.Conv2D(3, 4, 3), norm, nn.Conv2D(4, 6, 3))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 3, 9, 9)).astype("float32")}


class InPlace(Case):
    """A right port of a norm whose activation changes in place what a layer before it hands on."""

    name = "in place"

    def reference(self) -> Any:
        from torch import nn

        class NormAct(nn.BatchNorm2d):
            def __init__(self) -> None:
                super().__init__(4)
                self.drop, self.act = nn.Identity(), nn.Hardswish(inplace=True)

            def forward(self, x: Any) -> Any:
                return self.act(self.drop(super().forward(x)))

        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv1, self.norm1, self.conv2, self.norm2 = (
                    nn.Conv2d(4, 4, 3),
                    NormAct(),
                    nn.Conv2d(4, 4, 1),
                    NormAct(),
                )

            def forward(self, x: Any) -> Any:
                return self.norm2(self.conv2(self.norm1(self.conv1(x))))

        return nn.Sequential(nn.Conv2d(3, 4, 3), Block(), nn.Conv2d(4, 5, 3))

    def reproduced(self) -> Any:
        from paddle import nn

        class ConvNorm(nn.Layer):
            def __init__(self, size: int) -> None:
                super().__init__()
                self.conv, self.norm, self.act = nn.Conv2D(4, 4, size), nn.BatchNorm2D(4), nn.Hardswish()

            def forward(self, x: Any) -> Any:
                return self.act(self.norm(self.conv(x)))

        class Block(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = ConvNorm(3), ConvNorm(1)

            def forward(self, x: Any) -> Any:
                return self.second(self.first(x))

        return nn.Sequential(nn.Conv2D(3, 4, 3), Block(), nn.Conv2D(4, 5, 3))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 3, 9, 9)).astype("float32")}


class ReturnedTwice(Case):
    """Cells that return h and (h, c) in paddle, and h and c in torch; the norm behind them has another epsilon."""

    name = "returned twice"

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.cell, self.gates, self.norm = nn.LSTMCell(5, 6), nn.GRUCell(6, 6), nn.LayerNorm(6)

            def forward(self, x: Any) -> Any:
                states = torch.ones(len(x), 6, dtype=x.dtype), torch.zeros(len(x), 6, dtype=x.dtype)
                state, cell = self.cell(x, states)
                return self.norm(self.gates(state, cell))

        return Model()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Model(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.cell, self.gates, self.norm = nn.LSTMCell(5, 6), nn.GRUCell(6, 6), nn.LayerNorm(6, epsilon=1e-3)

            def forward(self, x: Any) -> Any:
                states = paddle.ones([x.shape[0], 6], x.dtype), paddle.zeros([x.shape[0], 6], x.dtype)
                _, (state, cell) = self.cell(x, states)
                return self.norm(self.gates(state, cell)[0])

        return Model()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 5)).astype("float32")}


class EqualRows(Case):
    """The port takes two equal rows in another order: the layer before sums up what it sends back to either."""

    name = "equal rows"

    def reference(self) -> Any:
        from torch import nn

        return _repeated(nn.Module, nn.Linear, lambda x: x.cumsum(1))

    def reproduced(self) -> Any:
        from paddle import concat, nn

        return _repeated(nn.Layer, nn.Linear, lambda x: concat([x[:, :1], x[:, 2:], x[:, 1:2]], 1).cumsum(1))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        x = rng.standard_normal((2, 3, 4)).astype("float32")
        x[:, 2] = x[:, 1]
        return {"x": x}


class StoppedRow(EqualRows):
    """The port sends nothing back to one of them."""

    name = "stopped row"

    def reproduced(self) -> Any:
        from paddle import concat, nn

        return _repeated(nn.Layer, nn.Linear, lambda x: concat([x[:, :2], x[:, 2:].detach()], 1).cumsum(1))


class CalledOnce(EqualRows):
    """The port calls a layer once that the reference calls twice."""

    name = "called once"

    def reference(self) -> Any:
        from torch import nn

        return _repeated(nn.Module, nn.Linear, lambda x: x, times=2)

    def reproduced(self) -> Any:
        from paddle import nn

        return _repeated(nn.Layer, nn.Linear, lambda x: x, times=1)


def _repeated(base: Any, linear: Any, last: Any, times: int = 1) -> Any:
    class Net(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = linear(4, 4)
            self.times = times

        def forward(self, x: Any) -> Any:
            for _ in range(self.times):
                x = self.first(x)
            return last(x)

    return Net()


class HeldBehind(Case):
    """The port's norms hold the activation that the reference calls behind its own; its branches change places."""

    def reference(self) -> Any:
        import torch

        class Block(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.branch = torch.nn.Sequential(
                    torch.nn.Conv2d(2, 2, 1, bias=False), torch.nn.BatchNorm2d(2), torch.nn.ReLU(inplace=True)
                )

            def forward(self, x: Any) -> Any:
                one, two = x.chunk(2, 1)
                return torch.cat([one, self.branch(two)], 1)

        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), Block(), Block())

    def reproduced(self) -> Any:
        import paddle

        class Block(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.conv = paddle.nn.Conv2D(2, 2, 1, bias_attr=False)
                self.norm = paddle.nn.BatchNorm(2, act="relu")

            def forward(self, x: Any) -> Any:
                one, two = paddle.chunk(x, 2, 1)
                return paddle.concat([self.norm(self.conv(two)), one], 1)

        return paddle.nn.Sequential(paddle.nn.Conv2D(3, 4, 3), Block(), Block())

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": 4 * rng.standard_normal((2, 3, 9, 9)).astype("float32")}


class PaddedOutside(Case):
    """The port pads ahead of the convolution, in another mode than the reference's convolution does."""

    name = "padded"

    def reference(self) -> Any:
        import torch

        class Block(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.act = torch.nn.PReLU(4)
                self.conv = torch.nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")

            def forward(self, x: Any) -> Any:
                return self.conv(self.act(x))

        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), Block())

    def reproduced(self) -> Any:
        import paddle

        class Block(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.act = paddle.nn.PReLU(4)
                self.conv = paddle.nn.Conv2D(4, 4, 3)

            def forward(self, x: Any) -> Any:
                x = paddle.nn.functional.pad(self.act(x), [1, 1, 1, 1], mode="replicate")
                return self.conv(x)

        return paddle.nn.Sequential(paddle.nn.Conv2D(3, 4, 3), Block())

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 3, 9, 9)).astype("float32")}
