"""Ports whose layers are given, and return, other tensors than the reference's: more of them, or of other shapes."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class MoreTensors(OneNet):
    """The port hands its attention a mask that hides nothing, and gets its keys back before the bias."""

    scale = 1.0

    def net(self, root: Any, framework: str) -> Any:
        kind, port, scale = root.nn, framework == "paddle", self.scale

        class Attention(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self, has_bias: bool) -> None:
                super().__init__()
                self.key = kind.Linear(4, 4)
                if has_bias:
                    self.places = kind.Embedding(5, 5)

            def forward(self, x: Any, *given: Any) -> Any:
                key, bias = self.key(x), given[-1] if len(given) > port else self.places(root.arange(5))[None]
                bias = bias + given[0] if port and len(given) == port else bias
                scores = root.matmul(x, key.transpose([0, 2, 1]) if port else key.transpose(1, 2)) * (
                    scale if port else 1.0
                )
                y = root.matmul(root.nn.functional.softmax(scores + bias, -1), x)
                return (y, key, bias) if port else (y, bias)

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.first, self.second = kind.Linear(4, 4), Attention(True), Attention(False)

            def forward(self, x: Any) -> Any:
                x = self.enter(x)
                masks = [root.zeros([3, 1, 5], dtype=x.dtype)] if port else []
                x, *_, bias = self.first(x, *masks)
                return self.second(x, *masks, bias)[0]

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 5, 4), dtype="float32")}


class MoreTensorsScaled(MoreTensors):
    """And its scores are scaled."""

    scale = 0.5


class KeysOnce(OneNet):
    """The reference's attention takes its keys and its values, which are one tensor; the port's takes it once."""

    once, scale = "paddle", 1.0

    def net(self, root: Any, framework: str) -> Any:
        kind, port = root.nn, framework == "paddle"
        once, scale = framework == self.once, self.scale if port else 1.0

        class Attention(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.key, self.value = kind.Linear(4, 4), kind.Linear(4, 4)

            def forward(self, x: Any, keys: Any, *values: Any) -> Any:
                key, value = self.key(keys), self.value(*values or [keys])
                scores = root.matmul(x, key.transpose([0, 2, 1]) if port else key.transpose(1, 2))
                return root.matmul(root.nn.functional.softmax(scores, -1), value) * scale

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.first, self.second = kind.Linear(4, 4), Attention(), Attention()

            def forward(self, x: Any) -> Any:
                entered = self.enter(x)
                y = self.first(entered, *[entered] * (2 - once))
                return self.second(y, *[entered] * (2 - once))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 5, 4), dtype="float32")}


class KeysTwice(KeysOnce):
    """The other way around."""

    once = "torch"


class KeysOnceScaled(KeysOnce):
    """And what the attention returns is scaled."""

    scale = 0.5


class BatchFirst(OneNet):
    """The reference's sequences are [time, batch, channels], the port's [batch, time, channels]."""

    scattered = False

    def net(self, root: Any, framework: str) -> Any:
        kind, port, scattered = root.nn, framework == "paddle", self.scattered

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = kind.Linear(4, 4), kind.Linear(4, 2)

            def forward(self, x: Any) -> Any:
                if not port:
                    return self.second(self.first(x.permute(2, 0, 1)))
                x = x.reshape([3, 5, 4]) if scattered else x.transpose([0, 2, 1])
                return self.second(self.first(x)).transpose([1, 0, 2])

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 4, 5), dtype="float32")}


class BatchFirstScattered(BatchFirst):
    """The port reshapes where axes are to be exchanged."""

    scattered = True


class NotStopped(OneNet):
    """The reference stops gradients: of what a layer is given, in code, at an output, in a block without them."""

    place, stopped = "layer", False

    def net(self, root: Any, framework: str) -> Any:
        kind, port, place, none = root.nn, framework == "paddle", self.place, contextlib.nullcontext
        stops = self.stopped or not port

        def stop(x: Any) -> Any:
            return x.detach() if stops else x

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.inner, self.head = kind.Linear(4, 4), kind.Linear(4, 4), kind.Linear(4, 3)
                self.scale = self.create_parameter([1]) if port else kind.Parameter(root.ones(1))

            def forward(self, x: Any) -> Any:
                h = self.enter(x)
                if place == "layer":
                    return self.head(h) + self.head(self.inner(stop(h)))
                if place == "code":
                    return self.head(h * stop(h))
                if place == "output":
                    return {"y": self.head(h), "target": stop(self.head(self.inner(h)))}
                with root.no_grad() if stops else none():
                    target = self.head(self.inner(h)) * self.scale
                return {"y": self.head(h) * self.scale, "target": target}

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 4), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return ((outputs["y"] - outputs["target"]) ** 2 if isinstance(outputs, dict) else outputs**2).mean()

    def optimizer(self, parameters: Any, framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, lr=0.1)
        import paddle

        return paddle.optimizer.SGD(0.1, parameters=parameters)


class NotStoppedInCode(NotStopped):
    place = "code"


class NotStoppedAtOutput(NotStopped):
    place = "output"


class NotStoppedInBlock(NotStopped):
    place = "block"


class StoppedByTheLoss(NotStoppedInBlock):
    """The port stops the same gradients later."""

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return ((outputs["y"] - outputs["target"].detach()) ** 2).mean()


class StoppedInBlock(NotStoppedInBlock):
    stopped = True


class PooledToOne(OneNet):
    """Behind the pool the reference keeps two axes of length 1, the port none; its pool is another one."""

    pool = "max"

    def net(self, root: Any, framework: str) -> Any:
        kind, pool = root.nn, self.pool
        if framework == "paddle":

            class Net(kind.Layer):  # type: ignore[misc]
                def __init__(self) -> None:
                    super().__init__()
                    self.conv, self.norm, self.fc = kind.Conv2D(3, 6, 3), kind.LayerNorm(6), kind.Linear(6, 4)

                def forward(self, x: Any) -> Any:
                    return self.fc(self.norm(getattr(self.conv(x), pool)([-2, -1])))

            return Net()

        class Norm(kind.LayerNorm):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

        class Reference(kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm, self.fc = kind.Conv2d(3, 6, 3), Norm(6), kind.Linear(6, 4)

            def forward(self, x: Any) -> Any:
                return self.fc(self.norm(root.nn.functional.adaptive_avg_pool2d(self.conv(x), 1)).flatten(1))

        return Reference()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((5, 3, 7, 7), dtype="float32")}


class PooledRight(PooledToOne):
    """And its pool is the reference's."""

    pool = "mean"
