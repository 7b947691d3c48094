"""A port that has other kinds of layers than the reference in four places, each without weights of its own."""

from typing import Any

import numpy as np

from twinalign import Case


class Kinds(Case):
    """A convolution, four layers that differ, and a linear layer."""

    def reference(self) -> Any:
        from torch import nn

        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Identity(),
            nn.ELU(),
            nn.MaxPool2d(2),
            nn.Softplus(),
            nn.Flatten(),
            nn.Linear(64, 3),
        )

    def reproduced(self) -> Any:
        from paddle import nn

        return nn.Sequential(
            nn.Conv2D(3, 4, 3, padding=1),
            nn.LayerNorm(8, weight_attr=False, bias_attr=False),
            nn.CELU(0.5),
            nn.AvgPool2D(3, 2, 1),
            nn.Softmax(-1),
            nn.Flatten(),
            nn.Linear(64, 3),
        )

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 3, 8, 8)).astype("float32")}
