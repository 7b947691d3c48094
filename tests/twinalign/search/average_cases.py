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


class BeginsEqual(Right):
    """The averaged network begins as the trained one, as in most trainings: the first step shows no wrong update."""

    steps = 2
    momentum = 0.8
    after = False
    """The port uses the averaged network first, and moves it then."""

    def reference(self) -> Any:
        import torch

        return self.model(torch, torch.nn, torch.nn.Module, torch.nn.Linear, 0.9, False)

    def reproduced(self) -> Any:
        import paddle

        return self.model(paddle, paddle.nn, paddle.nn.Layer, paddle.nn.Linear, self.momentum, self.after)

    @staticmethod
    def model(framework: Any, nn: Any, base: Any, linear: Any, momentum: float, after: bool) -> Any:
        class Model(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.m = momentum
                self.base, self.average = nn.Sequential(linear(4, 6)), nn.Sequential(linear(4, 6))
                self.register_buffer("seen", framework.zeros([1]))
                for ours, averaged in zip(self.base.parameters(), self.average.parameters(), strict=True):
                    self.put(averaged, ours)
                    averaged.stop_gradient = True  # paddle's
                    averaged.requires_grad = False  # torch's

            @staticmethod
            def put(tensor: Any, value: Any) -> None:
                value = value.detach().clone()
                tensor.set_value(value) if hasattr(tensor, "set_value") else tensor.data.copy_(value)

            def move(self) -> None:
                for ours, averaged in zip(self.base.parameters(), self.average.parameters(), strict=True):
                    self.put(averaged, averaged * self.m + ours * (1 - self.m))

            def forward(self, x: Any) -> Any:
                query = self.base(x)
                with framework.no_grad():
                    if not after:
                        self.move()
                    key = self.average(x)
                    if after:
                        self.move()
                    self.put(self.seen, self.seen + 1)
                return query * key

        return Model()

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return outputs.mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, lr=0.5)
        import paddle

        return paddle.optimizer.SGD(0.5, parameters=parameters)


class BeginsEqualAndRight(BeginsEqual):
    momentum = 0.9


class BeginsEqualAndLate(BeginsEqualAndRight):
    after = True
