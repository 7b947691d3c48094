"""A table of positions that the port computes in its constructor in another order, which float32 rounds otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Rounded(OneNet):
    """Both keep in a buffer what no state holds, and nothing but rounding differs."""

    shift = 0.0
    factor = 1.0

    def net(self, root: Any, framework: str) -> Any:
        kind, port, shift = root.nn, framework == "paddle", self.shift
        factor = self.factor if port else 1.0

        class Scale(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return x * factor

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.leave, self.scale = kind.Linear(8, 8), kind.Linear(8, 8), Scale()
                at = root.arange(5, dtype=root.get_default_dtype())[:, None]
                places = root.arange(8, dtype=root.get_default_dtype()) / 8
                if port:
                    self.register_buffer("table", root.sin(at * 10.0**-places + shift), persistable=False)
                else:
                    self.register_buffer("table", root.sin(at / root.pow(root.tensor(10.0), places)), persistent=False)

            def forward(self, x: Any) -> Any:
                return self.scale(self.leave(self.enter(x) + self.table))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 5, 8), dtype="float32")}


class Shifted(Rounded):
    """The port's table is off by as little as rounding."""

    shift = 3e-7


class RoundedBeside(Rounded):
    """Another layer of the port is wrong."""

    factor = 1.01


class Masked(OneNet):
    """The port's mask, which nothing stores, leaves the next position open."""

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.query = nn.Linear(8, 8)
                mask = torch.triu(torch.ones(5, 5), diagonal=1)
                self.register_buffer("mask", mask, persistent=False)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (self.query(x) @ x.transpose(-1, -2) - 1e3 * self.mask).softmax(-1) @ x

        return Net()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.query = nn.Linear(8, 8)
                mask = paddle.triu(paddle.ones([5, 5]), diagonal=2)
                self.register_buffer("mask", mask, persistable=False)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                return nn.functional.softmax(self.query(x) @ x.transpose([0, 2, 1]) - 1e3 * self.mask, -1) @ x

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 5, 8), dtype="float32")}
