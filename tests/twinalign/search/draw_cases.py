"""Pairs whose forward is the case's own, and wrong in the port: on every draw of inputs alike, or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign import Case


class Twice(Case):
    """The port returns twice the values."""

    name = "twice"

    def reference(self) -> Any:
        from torch import nn

        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def reproduced(self) -> Any:
        from paddle import nn

        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 6), dtype="float32"), "flags": self.flags(rng)}

    def flags(self, rng: np.random.Generator) -> np.ndarray:
        return np.array([1, 1])

    def forward(self, model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        returned = model(inputs["x"])
        return returned if framework == "torch" else returned * inputs["flags"].sum().astype(returned.dtype)


class Counted(Twice):
    """The port returns as many times the values as flags are set: two on the recorded draw, others on others."""

    name = "counted"
    seed = 6

    def flags(self, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, 2, 4)


class CountedTwins(Counted):
    """Inputs that are the same each time: the second draw is made from them."""

    name = "counted twins"

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": np.linspace(-1.0, 1.0, 12, dtype="float32").reshape(2, 6), "flags": np.array([1, 1, 0, 0])}

    def forward(self, model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        returned = model(inputs["x"])
        factor = 1 + inputs["flags"][0] + 2 * inputs["flags"][3]
        return returned if framework == "torch" else returned * factor.astype(returned.dtype)
