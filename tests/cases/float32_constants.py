"""Right ports whose kernels keep constants in float32: label smoothing, a slow batch norm in a subclass, momentum.

The port is written in the dialect of paddle that takes torch's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign import Case


class TorchDialect(Case):
    name = "torch_dialect"
    train_mode = True
    steps = 3
    accept = ("bn_running_var_biased",)
    smoothing = 0.1
    momentum = 0.01

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self, momentum: float) -> None:
                super().__init__()
                self.patches = nn.Conv2d(3, 8, 2, stride=2)
                self.norm = nn.BatchNorm2d(8, momentum=momentum)
                self.mixing = nn.Linear(8, 8)
                self.scale = nn.Parameter(torch.full((8,), 1.5))
                self.head = nn.Linear(8, 4)

            def forward(self, x: Any) -> Any:
                x = nn.functional.hardswish(self.norm(self.patches(x))).flatten(2).transpose(1, 2)
                return self.head((self.mixing(x) * self.scale).mean(1))

        return Model(0.01)

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class NormAct(nn.BatchNorm2D):
            def forward(self, x: Any) -> Any:
                return nn.functional.hardswish(super().forward(x))

        class Model(nn.Module):
            def __init__(self, momentum: float) -> None:
                super().__init__()
                self.patches = nn.Conv2d(3, 8, 2, stride=2)
                self.norm = NormAct(8, momentum=1 - momentum)
                self.mixing = paddle.compat.nn.Linear(8, 8)
                self.scale = nn.Parameter(paddle.full([8], 1.5))
                self.head = paddle.compat.nn.Linear(8, 4)

            def forward(self, x: Any) -> Any:
                x = self.norm(self.patches(x)).flatten(2).transpose(1, 2)
                return self.head((self.mixing(x) * self.scale).mean(1))

        return Model(self.momentum)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((8, 3, 8, 8), dtype="float32"), "labels": rng.integers(0, 4, 8)}

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"])

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.nn.functional.cross_entropy(outputs, inputs["labels"], label_smoothing=0.1)
        import paddle

        return paddle.nn.functional.cross_entropy(outputs, inputs["labels"], label_smoothing=self.smoothing)

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
        import paddle

        return paddle.optimizer.Momentum(0.05, 0.9, parameters=parameters)


class TableOfPositions(Case):
    """The port makes its table of positions in the constructor, the reference in its forward."""

    rate = "0.3"
    refuses = ""
    steepness = "1"
    """By how much both networks widen what keeps them apart."""

    def reference(self) -> Any:
        import torch

        steepness = float(self.steepness)

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.fc = torch.nn.Linear(6, 6)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                angles = torch.arange(6, dtype=torch.float32) * 0.3
                return (steepness * (self.fc(x) + 0.2 * angles.cos())).sin()

        return Net()

    def reproduced(self) -> Any:
        import paddle

        rate, steepness = float(self.rate), float(self.steepness)
        if self.refuses and paddle.get_default_dtype() == "float64":
            raise TypeError("float32 is expected")

        class Net(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.fc = paddle.nn.Linear(6, 6)
                self.table = paddle.cos(paddle.arange(6, dtype="float32") * rate)

            def forward(self, x: paddle.Tensor) -> paddle.Tensor:
                return (steepness * (self.fc(x) + 0.2 * self.table.astype(x.dtype))).sin()

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((5, 6), dtype="float32")}


class TableBesideLoss(TableOfPositions):
    """The port's loss is wrong as well."""

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        return outputs.square().mean() if framework == "torch" else outputs.square().sum()


class MeasuredTable(TableOfPositions):
    """Its metric runs in float32 alone."""

    def evaluate(self, model: Any, framework: str, dtype: str) -> dict[str, float]:
        if dtype == "float64":
            raise TypeError("float32 is expected")
        return {"accuracy": 75.0}
