"""A port that is recorded in seconds and has what a forger may alter: norms, buffers, gradients, Adam's state."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class Compact(Case):
    """A few layers in training mode, with two steps of AdamW."""

    name = "compact"
    train_mode = True
    steps = 2

    def reference(self) -> Any:
        from torch import nn

        return nn.Sequential(
            nn.Linear(12, 40), nn.BatchNorm1d(40), nn.GELU(), nn.Linear(40, 120), nn.LayerNorm(120), nn.Linear(120, 8)
        )

    def reproduced(self) -> Any:
        from paddle import nn

        return nn.Sequential(
            nn.Linear(12, 40), nn.BatchNorm1D(40), nn.GELU(), nn.Linear(40, 120), nn.LayerNorm(120), nn.Linear(120, 8)
        )

    accept = ("bn_running_var_biased",)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((32, 12), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return {"loss": (outputs * outputs).mean(), "mean": outputs.mean()}

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)
        import paddle

        return paddle.optimizer.AdamW(1e-3, parameters=parameters, weight_decay=0.01)
