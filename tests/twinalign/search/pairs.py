"""Small pairs of models, and ports of them with known faults, for the tests of locating."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


def torch_net(**options: Any) -> Any:
    """A small convolutional net with a shared layer, a residual, a tuple between its parts and a tied head."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(6)
            self.act = nn.ReLU(inplace=True)
            self.mix = nn.Conv2d(6, 6, 3, padding=1)

        def forward(self, x: Any) -> Any:
            return x + 0.5 * self.mix(self.act(self.norm(x)))

    class Silent(nn.Module):
        def forward(self, x: Any) -> None:
            return None

    class Split(nn.Module):
        def forward(self, x: Any, scale: Any = None) -> Any:
            return {"low": x[:, :3], "high": x[:, 3:] * scale}

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 6, 3, stride=2, padding=1)
            self.part1, self.part2 = Part(), Part()
            self.silent, self.split = Silent(), Split()
            self.shared = nn.Linear(6, 6)
            self.norm = nn.LayerNorm(6, eps=1e-6)
            self.head = nn.Linear(6, 5)

        def forward(self, x: Any) -> Any:
            x = self.part2(self.part1(self.stem(x)))
            self.silent(x)
            halves = self.split(x, scale=torch.tensor(2.0, dtype=x.dtype))
            x = torch.cat([halves["low"], halves["high"]], dim=1).mean(dim=(2, 3))
            x = self.shared(F.gelu(self.shared(x)))
            x = self.norm(x)
            return self.head(x), F.linear(x, self.shared.weight)

    return Net()


def paddle_net(**faults: Any) -> Any:
    """The same in paddle; `faults` makes it wrong."""
    import paddle
    import paddle.nn.functional as F
    from paddle import nn

    act, norm = faults.get("act", "act"), faults.get("norm", "norm")

    class Part(nn.Layer):
        def __init__(self, scale: float = 0.5, detached: bool = False) -> None:
            super().__init__()
            self.scale, self.detached = scale, detached
            self.norm = nn.BatchNorm2D(6)
            setattr(self, act, nn.ReLU())
            self.mix = nn.Conv2D(6, 6, 3, padding=1)

        def forward(self, x: Any) -> Any:
            mixed = self.mix(getattr(self, act)(self.norm(x)))
            return (x.detach() if self.detached else x) + self.scale * mixed

    class Silent(nn.Layer):
        def forward(self, x: Any) -> None:
            return None

    class Split(nn.Layer):
        def forward(self, x: Any, scale: Any = None) -> Any:
            return {"low": x[:, :3], "high": x[:, 3:] * scale}

    class Net(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2D(3, 6, 3, stride=2, padding=1)
            self.part1 = Part(faults.get("scale", 0.5))
            self.part2 = Part(detached=faults.get("detached", False))
            self.silent, self.split = Silent(), Split()
            self.shared = nn.Linear(6, 6)
            setattr(self, norm, nn.LayerNorm(6, epsilon=faults.get("epsilon", 1e-6)))
            self.head = nn.Linear(6, 5)
            self.gelu = faults.get("gelu", False)
            for part in (self.part1, self.part2):
                part.norm._momentum = faults.get("momenta", 0.9)
            if "momentum" in faults:
                self.part1.norm._momentum = faults["momentum"]

        def forward(self, x: Any) -> Any:
            x = self.part2(self.part1(self.stem(x)))
            self.silent(x)
            halves = self.split(x, scale=paddle.to_tensor(2.0, dtype=x.dtype))
            x = paddle.concat([halves["low"], halves["high"]], axis=1).mean(axis=[2, 3])
            x = self.shared(F.gelu(self.shared(x), approximate=self.gelu))
            x = getattr(self, norm)(x)
            return self.head(x), F.linear(x, self.shared.weight)

    net = Net()
    if faults.get("frozen"):
        for parameter in net.head.parameters():
            parameter.stop_gradient = True
    if faults.get("frozen_norm"):
        net.part1.norm.weight.stop_gradient = True
    return net


class Net(Case):
    """The pair, in training mode, without a loss."""

    name = "net"
    train_mode = True
    faults: dict[str, Any] = {}  # noqa: RUF012

    def reference(self) -> Any:
        return torch_net()

    def reproduced(self) -> Any:
        return paddle_net(**self.faults)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 3, 8, 8)).astype("float32")}


class Evaluating(Net):
    """In evaluation mode, with a loss."""

    train_mode = False

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs[0] ** 2).mean() + outputs[1].abs().mean()


class Epsilon(Net):
    faults = {"epsilon": 1e-5}  # noqa: RUF012


class EvaluatingEpsilon(Evaluating):
    faults = {"epsilon": 1e-5}  # noqa: RUF012


class Scale(Net):
    faults = {"scale": 0.25}  # noqa: RUF012


class Gelu(Net):
    faults = {"gelu": True}  # noqa: RUF012


class Momentum(Net):
    faults = {"momentum": 0.1}  # noqa: RUF012


class Momenta(Net):
    """Both batch norms have a momentum of paddle's that is far from torch's, and few new values reach them."""

    faults = {"momenta": 0.99}  # noqa: RUF012


class Detached(Net):
    faults = {"detached": True}  # noqa: RUF012


class Frozen(Evaluating):
    faults = {"frozen": True}  # noqa: RUF012


class FrozenNorm(Net):
    faults = {"frozen_norm": True}  # noqa: RUF012


class Several(Net):
    """Four faults at once; the epsilon hides behind the wrong scale in everything that the model returns."""

    faults = {"epsilon": 1e-5, "scale": 0.25, "gelu": True, "momentum": 0.1}  # noqa: RUF012


class Accepting(Net):
    accept = ("bn_running_var_biased",)


class AcceptingMomentum(Momentum):
    """Of the two causes of the wrong statistics one is accepted."""

    accept = ("bn_running_var_biased",)


class Renamed(Evaluating):
    """Layers of other names in the port, and a norm of another epsilon among them."""

    rename = {"norm": "last"}  # noqa: RUF012
    faults = {"epsilon": 1e-4, "norm": "last", "act": "rectify"}  # noqa: RUF012
