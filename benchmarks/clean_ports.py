"""Correct ports of common kinds of models, written plainly in both frameworks; for false_alarms.py.

Each is built by one function of the framework, so that both sides have the same layers in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from twinalign import Case

CLASSES = 10
VOCABULARY = 500


class Api:
    """Functions that the two frameworks call by different names."""

    def __init__(self, framework: str) -> None:
        self.is_torch = framework == "torch"
        if self.is_torch:
            import torch as root
            from torch.nn import functional
        else:
            import paddle as root
            from paddle.nn import functional
        self.root, self.nn, self.functional = root, root.nn, functional
        self.Module: Any = root.nn.Module if self.is_torch else root.nn.Layer

    def convolution(self, *sizes: int, bias: bool = True, **options: Any) -> Any:
        """Two-dimensional."""
        if self.is_torch:
            return self.nn.Conv2d(*sizes, bias=bias, **options)
        return self.nn.Conv2D(*sizes, **({} if bias else {"bias_attr": False}), **options)

    def batch_norm(self, channels: int) -> Any:
        """Over pictures."""
        return self.nn.BatchNorm2d(channels) if self.is_torch else self.nn.BatchNorm2D(channels)

    def silu(self) -> Any:
        """The activation."""
        return self.nn.SiLU() if self.is_torch else self.nn.Silu()

    def permuted(self, x: Any, *axes: int) -> Any:
        """The tensor with its axes in that order."""
        return x.permute(*axes) if self.is_torch else x.transpose(list(axes))

    def constant(self, owner: Any, size: int, value: float) -> Any:
        """A parameter of a module."""
        if self.is_torch:
            return self.nn.Parameter(self.root.full((size,), value))
        return owner.create_parameter([size], default_initializer=self.nn.initializer.Constant(value))


class Port(Case):
    """Options: the optimizer, the size of pictures or length of texts, the batch size."""

    stages = ("forward", "loss", "backward")
    steps = 3
    algorithm = "AdamW"
    size = 64
    batch = 4
    network: Callable[[Api], Any]

    def reference(self) -> Any:
        return type(self).network(Api("torch"))

    def reproduced(self) -> Any:
        return type(self).network(Api("paddle"))

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        pictures = rng.standard_normal((self.batch, 3, self.size, self.size), dtype="float32")
        return {"x": pictures, "y": rng.integers(0, CLASSES, self.batch)}

    def forward(self, model: Any, inputs: Any, framework: str) -> Any:
        return model(inputs["x"])

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return Api(framework).functional.cross_entropy(outputs, inputs["y"])

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            if self.algorithm == "SGD":
                return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)
            return getattr(torch.optim, self.algorithm)(parameters, lr=1e-3, weight_decay=0.05)
        import paddle

        if self.algorithm == "SGD":
            return paddle.optimizer.Momentum(0.1, 0.9, parameters, weight_decay=1e-4)
        return getattr(paddle.optimizer, self.algorithm)(1e-3, parameters=parameters, weight_decay=0.05)


def convnext(api: Api) -> Any:
    """Two stages of two ConvNeXt blocks with layer scale 1e-6 (Liu et al., arXiv 2201.03545)."""
    nn = api.nn

    class Block(api.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.depthwise = api.convolution(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width, 1e-6)
            self.expand, self.act, self.reduce = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            self.scale = api.constant(self, width, 1e-6)

        def forward(self, x: Any) -> Any:
            y = self.norm(api.permuted(self.depthwise(x), 0, 2, 3, 1))
            return x + api.permuted(self.scale * self.reduce(self.act(self.expand(y))), 0, 3, 1, 2)

    class Network(api.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = api.convolution(3, 32, 4, stride=4)
            self.first = nn.Sequential(Block(32), Block(32))
            self.down = api.convolution(32, 64, 2, stride=2)
            self.second = nn.Sequential(Block(64), Block(64))
            self.norm, self.head = nn.LayerNorm(64, 1e-6), nn.Linear(64, CLASSES)

        def forward(self, x: Any) -> Any:
            x = self.second(self.down(self.first(self.stem(x))))
            return self.head(self.norm(x.mean([2, 3])))

    return Network()


class ConvNeXt(Port):
    """Layer norms over channels, depthwise convolutions, scales next to zero."""

    name = "convnext"
    network = staticmethod(convnext)


def mobile(api: Api) -> Any:
    """Inverted bottlenecks with batch norm and hard swish."""
    nn = api.nn

    def unit(before: int, behind: int, kernel: int, stride: int, groups: int, act: bool = True) -> Any:
        convolution = api.convolution(
            before, behind, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
        )
        return nn.Sequential(convolution, api.batch_norm(behind), *([nn.Hardswish()] if act else []))

    layers = [unit(3, 16, 3, 2, 1)]
    for before, behind, stride in ((16, 32, 2), (32, 32, 1), (32, 64, 2)):
        wide = 4 * before
        layers += [unit(before, wide, 1, 1, 1), unit(wide, wide, 3, stride, wide), unit(wide, behind, 1, 1, 1, False)]
    pool = nn.AdaptiveAvgPool2d(1) if api.is_torch else nn.AdaptiveAvgPool2D(1)
    return nn.Sequential(*layers, pool, nn.Flatten(), nn.Linear(64, CLASSES))


class Mobile(Port):
    """Batch norm in training mode; its running variance is paddle's convention."""

    name = "mobile"
    batch = 8
    train_mode = True
    accept = ("bn_running_var_biased",)
    network = staticmethod(mobile)


def transformer(api: Api) -> Any:
    """Four causal blocks, attention written out, learned positions."""
    nn, functional = api.nn, api.functional

    class Block(api.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.expand, self.act, self.reduce = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            count, length, width = x.shape
            qkv = self.qkv(self.norm1(x)).reshape([count, length, 3, self.heads, width // self.heads])
            q, k, v = api.permuted(qkv, 2, 0, 3, 1, 4)
            scores = q @ api.permuted(k, 0, 1, 3, 2) * (width // self.heads) ** -0.5
            later = api.root.triu(api.root.full([length, length], float("-inf"), dtype=scores.dtype), 1)
            mixed = api.permuted(functional.softmax(scores + later, -1) @ v, 0, 2, 1, 3)
            x = x + self.out(mixed.reshape([count, length, width]))
            return x + self.reduce(self.act(self.expand(self.norm2(x))))

    class Network(api.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, 64), nn.Embedding(256, 64)
            self.blocks = nn.Sequential(*[Block(64, 4) for _ in range(4)])
            self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, VOCABULARY)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.positions(api.root.arange(tokens.shape[1]))
            return self.head(self.norm(self.blocks(x)))

    return Network()


class LanguageModel(Port):
    """Cross entropy over every token; embeddings of which few rows have a gradient."""

    name = "language_model"
    batch = 8
    network = staticmethod(transformer)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        shape = (self.batch, self.size)
        return {"x": rng.integers(0, VOCABULARY, shape), "y": rng.integers(0, VOCABULARY, shape)}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        flat = outputs.reshape([-1, VOCABULARY]), inputs["y"].reshape([-1])
        return Api(framework).functional.cross_entropy(*flat)


def segmenter(api: Api) -> Any:
    """Convolutions with group norm at full resolution."""
    nn = api.nn
    layers = []
    for before, behind in ((3, 8), (8, 8)):
        layers += [api.convolution(before, behind, 3, padding=1), nn.GroupNorm(4, behind), api.silu()]
    return nn.Sequential(*layers, api.convolution(8, CLASSES, 1))


class Segmenter(Port):
    """A class for every pixel: sums over tens of thousands of positions."""

    name = "segmenter"
    size = 128
    batch = 2
    network = staticmethod(segmenter)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        labels = rng.integers(0, CLASSES, (self.batch, self.size, self.size))
        return {**super().inputs(rng), "y": labels}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        axis = {} if framework == "torch" else {"axis": 1}
        return Api(framework).functional.cross_entropy(outputs, inputs["y"], **axis)


def detector(api: Api) -> Any:
    """Two levels of a feature pyramid with a head of scores and boxes (Lin et al., arXiv 1612.03144)."""

    class Network(api.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = ((3, 16), (16, 32), (32, 64))
            self.down1, self.down2, self.down3 = (api.convolution(*w, 3, stride=2, padding=1) for w in widths)
            self.side2, self.side3 = api.convolution(32, 32, 1), api.convolution(64, 32, 1)
            self.scores, self.boxes = (api.convolution(32, count, 3, padding=1) for count in (9, 12))
            self.act = api.nn.ReLU()

        def forward(self, x: Any) -> Any:
            fine = self.act(self.down2(self.act(self.down1(x))))
            top = self.side3(self.act(self.down3(fine)))
            middle = self.side2(fine) + api.functional.interpolate(top, scale_factor=2, mode="nearest")
            levels = {"middle": middle, "top": top}
            heads = {"scores": self.scores, "boxes": self.boxes}
            return {f"{kind}_{name}": head(level) for name, level in levels.items() for kind, head in heads.items()}

    return Network()


class Detector(Port):
    """Focal loss summed over all anchors, smooth L1 for the boxes."""

    name = "detector"
    size = 128
    batch = 2
    network = staticmethod(detector)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        found = {"x": super().inputs(rng)["x"]}
        for level, extent in (("middle", self.size // 4), ("top", self.size // 8)):
            found[f"scores_{level}"] = (rng.random((self.batch, 9, extent, extent)) < 0.02).astype("float32")
            found[f"boxes_{level}"] = rng.standard_normal((self.batch, 12, extent, extent), dtype="float32")
        return found

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        functional = Api(framework).functional
        total = 0.0
        for level in ("middle", "top"):
            logits, target = outputs[f"scores_{level}"], inputs[f"scores_{level}"]
            share = functional.sigmoid(logits)
            entropy = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
            missed = share * (1 - target) + (1 - share) * target
            total = total + (missed**2 * (0.75 - 0.5 * target) * entropy).sum() / 50
            total = total + functional.smooth_l1_loss(outputs[f"boxes_{level}"], inputs[f"boxes_{level}"])
        return total


def recurrent(api: Api) -> Any:
    """A bidirectional LSTM of two layers over embedded tokens."""
    nn = api.nn
    # paddle's recurrent layers take the batch first without being told.
    first = {"batch_first": True, "bidirectional": True} if api.is_torch else {"direction": "bidirect"}

    class Network(api.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, 32)
            self.lstm = nn.LSTM(32, 48, num_layers=2, **first)
            self.head = nn.Linear(96, VOCABULARY)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.lstm(self.tokens(tokens))[0])

    return Network()


class Recurrent(LanguageModel):
    """paddle's recurrent layers go backward in training mode alone."""

    name = "recurrent"
    size = 24
    train_mode = True
    network = staticmethod(recurrent)


def attention(api: Api) -> Any:
    """The frameworks' own encoder layer, without dropout."""
    nn = api.nn
    first = {"batch_first": True} if api.is_torch else {}

    class Network(api.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, 64)
            layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, activation="gelu", **first)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(64, VOCABULARY)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.encoder(self.tokens(tokens)))

    return Network()


class Attention(LanguageModel):
    """Query, key and value in one matrix in torch, in three in paddle."""

    name = "attention"
    train_mode = True
    network = staticmethod(attention)
