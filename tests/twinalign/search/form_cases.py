"""Ports that hold their tensors in another form than the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet
from twinalign import Case


class Tokens(Case):
    """Blocks on tokens `[B, L, C]`; the port's blocks take maps `[B, H, W, C]`."""

    epsilon = 1e-6
    raises = False

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm = nn.LayerNorm(8, eps=1e-6)
                self.conv = nn.Conv2d(8, 8, 3, padding=1, groups=8)
                self.act = nn.GELU()

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                tokens, channels = x.shape[1:]
                y = self.norm(x).transpose(1, 2).reshape(-1, channels, 4, tokens // 4)
                return x + self.act(self.conv(y)).flatten(2).transpose(1, 2)

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.patch = nn.Conv2d(3, 8, 2, stride=2)
                self.blocks = nn.ModuleList([Block(), Block()])
                self.head = nn.Linear(8, 5)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = self.patch(x).flatten(2).transpose(1, 2)
                for block in self.blocks:
                    x = block(x)
                return self.head(x.mean(1))

        return Net()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        case = self

        class Block(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.norm = nn.LayerNorm(8, epsilon=case.epsilon)
                self.conv = nn.Conv2D(8, 8, 3, padding=1, groups=8)
                self.act = nn.GELU()

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                _batch, _height, _width, _channels = x.shape
                y = self.norm(x).transpose([0, 3, 1, 2])
                return x + self.act(self.conv(y)).transpose([0, 2, 3, 1])

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.patch = nn.Conv2D(3, 8, 2, stride=2)
                self.blocks = nn.LayerList([Block(), Block()])
                self.head = nn.Linear(8, 5)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                x = self.patch(x).transpose([0, 2, 3, 1])
                for block in self.blocks:
                    x = block(x)
                return self.head(x.mean([1, 2]))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 3, 8, 12)).astype("float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs**2).mean()


class WrongTokens(Tokens):
    """One norm of another epsilon as well."""

    epsilon = 1e-4


class Apart(Case):
    """The port's block gets two tensors where the reference's gets one, and cannot run on the reference's."""

    scale = 1.0

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.fc = nn.Linear(6, 6)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.fc(x)

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.Linear(6, 6)
                self.block = Block()
                self.head = nn.Linear(6, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = self.first(x)
                return self.head(self.block(torch.cat([x[:, :1], x], 1))[:, 1:])

        return Net()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        scale = self.scale

        class Block(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.fc = nn.Linear(6, 6)

            def forward(self, x: paddle.Tensor, token: paddle.Tensor) -> paddle.Tensor:
                if x.shape[1] != 4:
                    raise ValueError("four tokens and one more are expected")
                return self.fc(x)

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.Linear(6, 6)
                self.block = Block()
                self.head = nn.Linear(6, 3)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                x = self.first(x)
                return scale * self.head(self.block(x, x[:, :1]))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 4, 6)).astype("float32")}


class WrongApart(Apart):
    """What the head returns is doubled as well."""

    scale = 2.0


class Stages(Case):
    """The port halves the tokens at the end of the first stage, the reference at the beginning of the second."""

    epsilon = 1e-6

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Block(nn.Module):
            def __init__(self, width: int) -> None:
                super().__init__()
                self.norm = nn.LayerNorm(width, eps=1e-6)
                self.fc = nn.Linear(width, width)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x + self.fc(self.norm(x))

        class Stage(nn.Module):
            def __init__(self, width: int, halves: bool) -> None:
                super().__init__()
                self.reduction = nn.Linear(6, 4) if halves else nn.Identity()
                self.halves, self.block = halves, Block(width)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.block(self.reduction(x[:, ::2]) if self.halves else x)

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.stages = nn.Sequential(Stage(6, False), Stage(4, True))
                self.head = nn.Linear(4, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.head(self.stages(x).mean((1, 2)))

        return Net()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        case = self

        class Block(nn.Layer):
            def __init__(self, width: int) -> None:
                super().__init__()
                self.norm = nn.LayerNorm(width, epsilon=case.epsilon)
                self.fc = nn.Linear(width, width)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                _batch, _tokens, _width = x.shape
                return x + self.fc(self.norm(x))

        class Stage(nn.Layer):
            def __init__(self, width: int, halves: bool) -> None:
                super().__init__()
                self.block = Block(width)
                self.halves, self.reduction = halves, nn.Linear(6, 4) if halves else None

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                x = self.block(x)
                return self.reduction(x.reshape([-1, 4, 2, 6])[:, ::2].flatten(1, 2)) if self.halves else x

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.stages = nn.Sequential(Stage(6, True), Stage(4, False))
                self.head = nn.Linear(4, 3)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                return self.head(self.stages(x.flatten(1, 2)).mean([1]))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 4, 2, 6)).astype("float32")}


class WrongStages(Stages):
    """The norms have another epsilon as well."""

    epsilon = 1e-4


class Stopped(Case):
    """The port's first layer is wrong, and its own code does not run on what the reference's returns."""

    def reference(self) -> Any:
        from torch import nn

        return nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class First(nn.Linear):
            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                return super().forward(x) + 100

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.add_sublayer("0", First(6, 6))
                self.add_sublayer("1", nn.Linear(6, 3))

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                first, second = self.children()
                x = first(x)
                if float(x.mean()) < 50:
                    raise ValueError("too small")
                return second(x)

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 6)).astype("float32")}


class WrongNorm(Case):
    """The port's own norm divides by another deviation, so that its weights are not proven to be the reference's."""

    def reference(self) -> Any:
        import torch
        from torch import nn

        torch.manual_seed(0)
        model = nn.Sequential()
        for name, layer in (("first", nn.Linear(6, 6)), ("norm", nn.LayerNorm(6)), ("last", nn.Linear(6, 3))):
            model.add_module(name, layer)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        return model

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Norm(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.gamma = self.create_parameter([6], default_initializer=nn.initializer.Constant(1.0))
                self.beta = self.create_parameter([6], is_bias=True)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                deviation = paddle.sqrt(x.var(-1, keepdim=True) + 1e-5)
                return (x - x.mean(-1, keepdim=True)) / deviation * self.gamma + self.beta

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.norm, self.last = nn.Linear(6, 6), Norm(), nn.Linear(6, 3)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                return self.last(self.norm(self.first(x)))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 6)).astype("float32")}


class OwnWeights(Case):
    """The port has one head where the reference has two, and nothing tells which of them it is."""

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body, self.one, self.two = nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(5, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = self.body(x).relu()
                return self.one(x) - 2 * self.two(x)

        return Net()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                return self.head(nn.functional.relu(self.body(x)))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 6)).astype("float32")}


class Positions(Case):
    """Positions are looked up once for all samples by one side, and for each by the other."""

    epsilon, each = 1e-5, ("paddle",)

    def net(self, root: Any, framework: str, **named: float) -> Any:
        kind, each = root.nn, framework in self.each

        class Net(kind.Module if framework == "torch" else kind.Layer):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.words, self.places = kind.Embedding(20, 8), kind.Embedding(6, 8)
                self.norm, self.head = kind.LayerNorm(8, **named), kind.Linear(8, 3)

            def forward(self, ids: Any) -> Any:
                places = root.arange(6).unsqueeze(0)
                found = self.places(places.expand([2, 6]) if each else places)
                return self.head(self.norm(self.words(ids) + found))

        return Net()

    def reference(self) -> Any:
        import torch

        return self.net(torch, "torch")

    def reproduced(self) -> Any:
        import paddle

        return self.net(paddle, "paddle", epsilon=self.epsilon)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"ids": rng.integers(0, 20, (2, 6))}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs**2).mean()


class WrongPositions(Positions):
    """The reference looks them up for each sample, and the port's norm has another epsilon."""

    epsilon, each = 1e-3, ("torch",)


class More(OneNet):
    """The port returns, and hands on inside, what it pools as well; the loss takes whatever it is given."""

    both = ("paddle",)

    def net(self, root: Any, framework: str) -> Any:
        kind, both = root.nn, framework in self.both
        base = kind.Module if framework == "torch" else kind.Layer

        class Encoder(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.fc, self.pool = kind.Linear(6, 8), kind.Linear(8, 8)

            def forward(self, x: Any) -> Any:
                x = self.fc(x)
                return (x, root.tanh(self.pool(x))) if both else x

        class Net(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.encoder, self.head = Encoder(), kind.Linear(8, 3)

            def forward(self, x: Any) -> Any:
                found = self.encoder(x)
                return (self.head(found[0]), found[1]) if both else self.head(found)

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 6), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return sum((output**2).mean() for output in (outputs if isinstance(outputs, (tuple, list)) else [outputs]))


class Fewer(More):
    """The reference does."""

    both = ("torch",)


class InPlace(OneNet):
    """The port's code changes in place what its layers return, and its norm has another epsilon."""

    def net(self, root: Any, framework: str) -> Any:
        kind, in_place = root.nn, framework == "paddle"

        class Net(kind.Layer if in_place else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.last = kind.Linear(6, 8), kind.Linear(8, 3)
                self.norm = kind.LayerNorm(8, epsilon=1e-3) if in_place else kind.LayerNorm(8)

            def forward(self, x: Any) -> Any:
                y = self.norm(self.first(x))
                return self.last(y.add_(x.sum()) if in_place else y + x.sum())

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 6), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs**2).mean()
