"""Layers whose results depend on what ran before them; in the port of the wrong ones a factor is another."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class Counted(Case):
    """The first layer's result depends on how often it has run."""

    name = "repeating"
    factor = 2.0

    def reference(self) -> Any:
        import torch

        return self.model(torch, torch.nn.Module, 2.0)

    def reproduced(self) -> Any:
        import paddle

        return self.model(paddle, paddle.nn.Layer, self.factor)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 6), dtype="float32")}

    def model(self, framework: Any, base: Any, factor: float) -> Any:
        make = self.first

        class Model(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.last = make(framework, base, factor), framework.nn.Linear(6, 3)

            def forward(self, x: Any) -> Any:
                return self.last(self.first(x))

        return Model()

    @staticmethod
    def first(framework: Any, base: Any, factor: float) -> Any:
        class First(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.calls, self.inside = 0, framework.nn.Linear(6, 6)

            def forward(self, x: Any) -> Any:
                self.calls += 1
                return framework.tanh(self.inside(x)) * factor * self.calls

        return First()


class CountedWrong(Counted):
    factor = 3.0


class Drawn(Counted):
    """A generator of its own, which no framework knows."""

    @staticmethod
    def first(framework: Any, base: Any, factor: float) -> Any:
        class First(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.own, self.inside = np.random.default_rng(0), framework.nn.Linear(6, 6)

            def forward(self, x: Any) -> Any:
                drawn = framework.to_tensor if hasattr(framework, "to_tensor") else framework.tensor
                return framework.tanh(self.inside(x)) * factor + drawn(self.own.standard_normal(6)).to(x.dtype)

        return First()


class DrawnWrong(Drawn):
    factor = 3.0
