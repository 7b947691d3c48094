"""A reference that changes the result of an instance norm in place, which is a view of what the norm has made."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class InPlace(OneNet):
    factor = 1.0

    def net(self, root: Any, framework: str) -> Any:
        kind, port, factor = root.nn, framework == "paddle", self.factor

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                if port:
                    self.convolution = kind.Conv2D(3, 4, 3)
                    self.norm = kind.InstanceNorm2D(4, weight_attr=False, bias_attr=False)
                else:
                    self.convolution, self.norm = kind.Conv2d(3, 4, 3), kind.InstanceNorm2d(4)
                self.act = kind.ReLU() if port else kind.ReLU(inplace=True)

            def forward(self, x: Any) -> Any:
                x = self.act(self.norm(self.convolution(x)))
                return x * factor if port else x

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 3, 6, 6), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs**2).mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, lr=0.1)
        import paddle

        return paddle.optimizer.SGD(0.1, parameters=parameters)


class InPlaceScaled(InPlace):
    factor = 2.0
