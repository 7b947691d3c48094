"""A layer of the port that is of another class, with other parameters than the reference's or with none."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Weighted(OneNet):
    """The reference has a slope for each channel, the port has one slope that is no parameter."""

    def between(self, kind: Any, framework: str) -> Any:
        return kind.LeakyReLU(0.1) if framework == "paddle" else kind.PReLU(8)

    def net(self, root: Any, framework: str) -> Any:
        kind = root.nn
        return kind.Sequential(kind.Linear(6, 8), self.between(kind, framework), kind.Linear(8, 3))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 6), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs**2).mean()

    def optimizer(self, parameters: Any, framework: str) -> Any:
        if framework == "torch":
            from torch.optim import SGD

            return SGD(parameters, lr=0.1)
        import paddle

        return paddle.optimizer.SGD(0.1, parameters)


class Weightless(Weighted):
    """The port learns a slope that is a number in the reference."""

    def between(self, kind: Any, framework: str) -> Any:
        return kind.PReLU() if framework == "paddle" else kind.LeakyReLU(0.1)


class OtherNorm(Weighted):
    """Both have weights, and none of the port's are the reference's."""

    train_mode = True

    def between(self, kind: Any, framework: str) -> Any:
        return kind.LayerNorm(8) if framework == "paddle" else kind.BatchNorm1d(8)


class OtherSize(Weighted):
    """Convolutions of other sizes, whose weights are drawn: the port's convolution with its own gives its values."""

    def between(self, kind: Any, framework: str) -> Any:
        return kind.Conv1D(5, 5, 3, padding=1) if framework == "paddle" else kind.Conv1d(5, 5, 1)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 5, 6), dtype="float32")}


class Groups(Weighted):
    """The port's convolution lacks the groups, so that its weight has another shape."""

    def between(self, kind: Any, framework: str) -> Any:
        return kind.Conv1D(6, 6, 3, padding=1) if framework == "paddle" else kind.Conv1d(6, 6, 3, padding=1, groups=3)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 6, 6), dtype="float32")}


class NormedLinear(Weighted):
    """dim=0 of paddle's weight is the axis of the inputs, in the reference that of the outputs."""

    def net(self, root: Any, framework: str) -> Any:
        kind = root.nn
        return kind.Sequential(kind.Linear(6, 8), kind.utils.weight_norm(kind.Linear(8, 5), dim=0), kind.Linear(5, 3))


class NormedWhole(Weighted):
    """One length for the whole weight of a convolution in the port, one for each channel in the reference."""

    def between(self, kind: Any, framework: str) -> Any:
        if framework == "paddle":
            return kind.utils.weight_norm(kind.Conv1D(5, 5, 3, padding=1), dim=None)
        return kind.utils.parametrizations.weight_norm(kind.Conv1d(5, 5, 3, padding=1))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 5, 6), dtype="float32")}
