"""A port that has another factor in its code than the reference, which together look like a third one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Halved(OneNet):
    """A sum is multiplied with 0.5 in place of the root of it."""

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.last((x + self.first(x)) * math.sqrt(0.5))

        return Net()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                return self.last((x + self.first(x)) * 0.5)

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 6), dtype="float32")}


class Scaled(Halved):
    """The port's factor is an argument."""

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                return self.last(paddle.scale(x + self.first(x), scale=0.5))

        return Net()
