"""A case of three methods, as a user writes it first, and one whose port is wrong before anything is planted."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class ThreeMethods(Case):
    """A convolution, a batch norm, an activation and a Linear."""

    name = "three_methods"
    activation = "gelu"

    def reference(self) -> Any:
        import torch
        from torch import nn

        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * 16, 16),
            nn.GELU(),
            nn.Linear(16, 16),
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
            model[1].running_mean += 0.1 * torch.randn(8)
            model[1].running_var *= 2
        return model

    def reproduced(self) -> Any:
        from paddle import nn

        return nn.Sequential(
            nn.Conv2D(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2D(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * 16, 16),
            nn.GELU(approximate=self.activation == "tanh"),
            nn.Linear(16, 16),
        )

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 3, 8, 8), dtype=np.float32)}


class WrongPort(ThreeMethods):
    """Its GELU is the tanh form."""

    activation = "tanh"
