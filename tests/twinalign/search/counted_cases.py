"""Sides whose layers say how often they run: each forward adds its layer's name to a file, after `ref.` in torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from twinalign import Case

COUNTS = "COUNTED_CALLS"
"""Environment variable with the file's path."""


def count(layer: Any) -> None:
    """Asks the layer for its side: lines of the port run in the reference as well."""
    side = "ref." if type(layer).__mro__[1].__module__.startswith("torch") else ""
    with Path(os.environ[COUNTS]).open("a") as file:
        file.write(f"{side}{layer.number}\n")


class Right(Case):
    """Four layers in a container in a container."""

    name = "counted"
    wrong: tuple[int, ...] = ()
    layers = 4

    def reference(self) -> Any:
        from torch import nn

        class Counted(nn.BatchNorm1d):
            def __init__(self, number: int) -> None:
                super().__init__(40)
                self.number = number

            def forward(self, x: Any) -> Any:
                count(self)
                return super().forward(x)

        return nn.Sequential(nn.Sequential(*(Counted(number) for number in range(self.layers))))

    def reproduced(self) -> Any:
        from paddle import nn

        class Counted(nn.BatchNorm1D):
            def __init__(self, number: int, epsilon: float) -> None:
                super().__init__(40, epsilon=epsilon)
                self.number = number

            def forward(self, x: Any) -> Any:
                count(self)
                return super().forward(x)

        made = [Counted(number, 1e-3 if number in self.wrong else 1e-5) for number in range(self.layers)]
        return nn.Sequential(nn.Sequential(*made))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 40), dtype="float32") * 2}


class Wrong(Right):
    """The second and the last have another epsilon."""

    wrong = (1, 3)


class WrongEarly(Right):
    """The second alone, in front of two that are right."""

    wrong = (1,)
