"""Small ports of many kinds, each in both frameworks: what models take and return, and where float64 fails."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign import Case

Pair = namedtuple("Pair", ["pooled", "tokens"])


@dataclasses.dataclass
class Output:
    """What a model returns, as other people's libraries do it."""

    logits: Any
    hidden: tuple[Any, ...]
    extra: dict[str, Any]
    pair: Pair
    cache: Any = None


def make(framework: str, dynamic: bool = False) -> Any:
    """A network of tokens, positions, a mask and an image, of either framework."""
    if framework == "torch":
        import torch as lib
        from torch import nn

        base, axis = nn.Module, {"dim": -1}
    else:
        import paddle as lib
        from paddle import nn

        base, axis = nn.Layer, {"axis": -1}

    class Net(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(30, 8)
            self.first = nn.Linear(8, 8)
            self.image = nn.Linear(6, 8)
            self.head = nn.Linear(8, 5)

        def forward(self, tokens: Any, mask: Any, image: Any, scale: Any = None) -> Output:
            x = self.table(tokens)
            weights = mask.to(x.dtype) if framework == "torch" else mask.astype(x.dtype)
            x = self.first(x) * weights.unsqueeze(-1)
            pooled = x.sum(1) / weights.sum(-1).unsqueeze(-1).clip(min=1) + self.image(
                image.reshape([image.shape[0], -1])
            )
            if scale is not None:
                pooled = pooled * scale
            logits = self.head(pooled)
            return Output(
                logits=logits,
                hidden=(x, pooled),
                extra={"best": logits.argmax(**axis), "positive": logits > 0, "size": int(tokens.shape[1])},
                pair=Pair(pooled, lib.nn.functional.softmax(x, **axis)),
            )

    return Net()


class Everything(Case):
    """Several inputs (integers, a boolean mask, an image, a scalar), and outputs nested in every way."""

    name = "everything"
    steps = 2

    def reference(self) -> Any:
        return make("torch")

    def reproduced(self) -> Any:
        return make("paddle")

    def inputs(self, rng: np.random.Generator) -> dict[str, Any]:
        # Another length each time: shapes are the case's own affair.
        length = int(rng.integers(3, 9))
        return {
            "tokens": rng.integers(0, 30, (4, length)),
            "mask": rng.random((4, length)) < 0.7,
            "image": rng.standard_normal((4, 2, 3), dtype="float32"),
            "scale": np.float32(1.5),
        }

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        return {"loss": (outputs.logits**2).mean() + outputs.pair.tokens.mean(), "part": outputs.hidden[1].mean()}

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, 0.1)
        import paddle

        return paddle.optimizer.SGD(0.1, parameters)


class Float32Only(Case):
    """A model whose reference insists on float32, as one with a compiled kernel does."""

    name = "float32_only"
    side = "ref"

    def _guard(self, model: Any, side: str) -> Any:
        forward = model.forward
        if side not in self.side.split("+"):
            return model

        def checked(x: Any) -> Any:
            if "float64" in str(x.dtype):
                raise RuntimeError("no kernel for float64")
            return forward(x)

        model.forward = checked
        return model

    def reference(self) -> Any:
        from torch import nn

        return self._guard(nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 8)), "ref")

    def reproduced(self) -> Any:
        from paddle import nn

        return self._guard(nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 8)), "paddle")

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((5, 6), dtype="float32")}


class Float32OnlyWrong(Float32Only):
    """The same with a wrong activation in the port."""

    name = "float32_only_wrong"

    def reproduced(self) -> Any:
        from paddle import nn

        return self._guard(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 8)), "paddle")


class HalfPrecision(Case):
    """Scores of tokens, multiplied in float32 or better and kept in the model's own precision.

    paddle has kernels for that in bfloat16 on a CPU, as it has for little else.
    """

    name = "half_precision"
    factor = 1.0

    def reference(self) -> Any:
        import torch

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.table = torch.nn.Embedding(40, 32)
                self.head = torch.nn.Linear(32, 12, bias=False)

            def forward(self, tokens: Any) -> Any:
                x, w = self.table(tokens), self.head.weight
                wide = torch.promote_types(x.dtype, torch.float32)
                scores = (x.to(wide) @ w.to(wide).T).to(x.dtype)
                return {"scores": scores, "squares": scores * scores}

        return Net()

    def reproduced(self) -> Any:
        import paddle

        factor = self.factor

        class Net(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.table = paddle.nn.Embedding(40, 32)
                self.head = paddle.nn.Linear(32, 12, bias_attr=False)

            def forward(self, tokens: Any) -> Any:
                x, w = self.table(tokens), self.head.weight
                wide = "float64" if x.dtype == paddle.float64 else "float32"
                scores = (paddle.matmul(x.astype(wide), w.astype(wide)) * factor).astype(x.dtype)
                return {"scores": scores, "squares": scores * scores}

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"tokens": rng.integers(0, 40, (6, 9))}


class Float32Inside(Case):
    """A normalisation that casts to float32, in float64 too, as libraries of language models write it."""

    name = "float32_inside"
    factor = 1.0

    def reference(self) -> Any:
        import torch

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

            def forward(self, x: Any) -> Any:
                x = self.first(x)
                wide = x.to(torch.float32)
                wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
                return self.second(wide.to(x.dtype))

        return Net()

    def reproduced(self) -> Any:
        import paddle

        factor = self.factor

        class Net(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = paddle.nn.Linear(16, 16), paddle.nn.Linear(16, 16)

            def forward(self, x: Any) -> Any:
                x = self.first(x)
                wide = x.astype("float32")
                wide = wide * paddle.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * factor
                return self.second(wide.astype(x.dtype))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((8, 16), dtype="float32")}


class AdamFromZero(Case):
    """Biases and offsets that begin at zero are, after two steps, nothing but what Adam has made of them."""

    name = "adam_from_zero"
    stages = ("backward",)
    steps = 4

    def reference(self) -> Any:
        from torch import nn

        return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))

    def reproduced(self) -> Any:
        from paddle import nn

        return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((8, 16), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs * outputs).mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)
        import paddle

        return paddle.optimizer.AdamW(1e-3, parameters=parameters, weight_decay=0.01)


class DensePrediction(AdamFromZero):
    """A class a pixel: sums over 32 768 positions in the loss and in the gradients of biases and scales."""

    name = "dense_prediction"
    stages = ("loss", "backward")
    steps = 1

    def reference(self) -> Any:
        from torch import nn

        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 3, 1))

    def reproduced(self) -> Any:
        from paddle import nn

        return nn.Sequential(nn.Conv2D(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.Silu(), nn.Conv2D(8, 3, 1))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "x": rng.standard_normal((2, 3, 128, 128), dtype="float32"),
            "y": rng.integers(0, 3, (2, 128, 128)),
        }

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"])

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.nn.functional.cross_entropy(outputs, inputs["y"])
        import paddle

        return paddle.nn.functional.cross_entropy(outputs, inputs["y"], axis=1)
