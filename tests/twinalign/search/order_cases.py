"""Pairs of layers that take the same tensors in another order."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class Gated(Case):
    """The port's gate takes the features before the gating signal, and all that calls it does so, too."""

    name = "orders"
    slope, scale, gating, exchanged = 0.1, 2.0, "sigmoid", False

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Gate(nn.Module):
            def __init__(self, width: int) -> None:
                super().__init__()
                self.of_signal, self.of_features = nn.Linear(width, width), nn.Linear(width, width)
                self.score = nn.Linear(width, 1)

            def forward(self, signal: Any, features: Any) -> Any:
                mixed = torch.relu(self.of_signal(signal) + self.of_features(features))
                return features * torch.sigmoid(self.score(mixed))

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second, self.gate = nn.Linear(5, 5), nn.Linear(5, 5), Gate(5)

            def forward(self, x: Any) -> Any:
                features = torch.nn.functional.leaky_relu(self.first(x), 0.1)
                signal = 2.0 * torch.tanh(self.second(features))
                return self.gate(signal, features).sum(-1)

        return Model()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        case = self

        class Gate(nn.Layer):
            def __init__(self, width: int) -> None:
                super().__init__()
                self.of_signal, self.of_features = nn.Linear(width, width), nn.Linear(width, width)
                self.score = nn.Linear(width, 1)

            def forward(self, features: Any, signal: Any) -> Any:
                mixed = nn.functional.relu(self.of_signal(signal) + self.of_features(features))
                return features * getattr(nn.functional, case.gating)(self.score(mixed))

        class Model(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second, self.gate = nn.Linear(5, 5), nn.Linear(5, 5), Gate(5)

            def forward(self, x: Any) -> Any:
                features = nn.functional.leaky_relu(self.first(x), case.slope)
                signal = case.scale * paddle.tanh(self.second(features))
                if case.exchanged:
                    return self.gate(signal, features).sum(-1)
                return self.gate(features, signal).sum(-1)

        return Model()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 4, 5)).astype("float32")}


class WrongFeatures(Gated):
    """What is wrong before the gate hides which of its inputs is which."""

    slope = 0.3


class WrongSignal(Gated):
    """The signal alone is wrong."""

    scale = 3.0


class WrongGate(Gated):
    """The gate itself is wrong."""

    gating = "hardsigmoid"


class Exchanged(Gated):
    """What calls the gate exchanges its inputs."""

    exchanged = True


class OfShapes(Case):
    """The port's layer takes a vector before a table, which is wrong; `order` is all that tells them apart."""

    name, scale = "shapes", 3.0

    def reference(self) -> Any:
        import torch

        class Added(torch.nn.Module):
            def forward(self, table: Any, vector: Any) -> Any:
                return table * 0.5 + vector

        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear, self.added = torch.nn.Linear(5, 5), Added()

            def forward(self, x: Any) -> Any:
                table = 2.0 * self.linear(x)
                return self.added(table, table.mean((0, 1)))

        return Model()

    def reproduced(self) -> Any:
        import paddle

        scale = self.scale

        class Added(paddle.nn.Layer):
            def forward(self, vector: Any, table: Any) -> Any:
                return table * 0.5 + vector

        class Model(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.linear, self.added = paddle.nn.Linear(5, 5), Added()

            def forward(self, x: Any) -> Any:
                table = scale * self.linear(x)
                return self.added(table.mean((0, 1)), table)

        return Model()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 4, 5)).astype("float32")}
