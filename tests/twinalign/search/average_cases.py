"""Momentum networks that are updated in the model's forward, right in the reference and in other ways in the port."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class CoversStatistics(Case):
    """The port's update goes over the running statistics, which paddle holds among the parameters."""

    name = "averages"
    train_mode = True
    accept = ("bn_running_var_biased",)
    everything, copies = True, False

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.base, self.momentum = (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)) for _ in range(2))

            def forward(self, x: Any) -> Any:
                query = self.base(x)
                with torch.no_grad():
                    for ours, averaged in zip(self.base.parameters(), self.momentum.parameters(), strict=True):
                        averaged.data = averaged.data * 0.9 + ours.data * 0.1
                    return query + self.momentum(x)

        return Model()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        everything, copies = self.everything, self.copies

        class Model(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.base, self.momentum = (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1D(6)) for _ in range(2))
                self.first = copies

            def forward(self, x: Any) -> Any:
                query = self.base(x)
                with paddle.no_grad():
                    for (name, ours), averaged in zip(
                        self.base.named_parameters(), self.momentum.parameters(), strict=True
                    ):
                        if everything or name.rpartition(".")[2] in ("weight", "bias"):
                            m = 0.0 if self.first else 0.9
                            averaged.set_value(averaged * m + ours * (1 - m))
                    self.first = False
                    return query + self.momentum(x)

        return Model()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((8, 4), dtype="float32") + 1}


class Right(CoversStatistics):
    """Both update the same."""

    everything = False


class CopiesFirst(Right):
    """The port's first update copies; a flag that is no tensor says which one is the first."""

    copies = True
