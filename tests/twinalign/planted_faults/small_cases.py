"""Small cases for faults that few models have a place for: a long schedule, layers of images, layers of sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.twins import twin
from twinalign import Case


class LongSchedule(Case):
    """One Linear through twelve steps: a warm-up of four, then a cosine; a momentum that rises to 1."""

    name = "long_schedule"
    steps = 12
    rate = 0.01
    warmup = 4

    def reference(self) -> Any:
        import torch

        return torch.nn.Linear(4, 3)

    def reproduced(self) -> Any:
        import paddle

        return paddle.nn.Linear(4, 3)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((5, 4), dtype=np.float32)}

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        return (outputs**2).mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, self.rate)
        import paddle

        return paddle.optimizer.SGD(self.rate, parameters=parameters)

    def schedule(self, optimizer: Any, step: int, framework: str) -> dict[str, float]:
        progress = (step - self.warmup) / (self.steps - self.warmup)
        cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
        rate = self.rate * (step / self.warmup if step < self.warmup else cosine)
        if framework == "torch":
            optimizer.param_groups[0]["lr"] = rate
        else:
            optimizer.set_lr(rate)
        return {"momentum": 1.0 - 0.01 * 0.5 * (1.0 + math.cos(math.pi * step / self.steps))}


class ImageLayers(Case):
    """Layers of many kinds in a row, of which the last pools whatever size arrives, with a squared error."""

    name = "image_layers"

    def reference(self) -> Any:
        import torch
        from torch import nn

        model = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.ELU(),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(16, 16, 3, padding=1, groups=4),
            nn.Softplus(),
            nn.PixelShuffle(2),
            nn.ConvTranspose2d(4, 8, 3, 2, 1, output_padding=1),
            nn.AvgPool2d(2, 2),
            nn.LocalResponseNorm(3, alpha=0.1),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.AvgPool2d(3, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 6),
            nn.Softmax(dim=-1),
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        return model

    def reproduced(self) -> Any:
        from paddle import nn

        return nn.Sequential(
            nn.Conv2D(3, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.ELU(),
            nn.MaxPool2D(3, 2, 1),
            nn.Conv2D(16, 16, 3, padding=1, groups=4),
            nn.Softplus(),
            nn.PixelShuffle(2),
            nn.Conv2DTranspose(4, 8, 3, 2, 1, output_padding=1),
            nn.AvgPool2D(2, 2),
            nn.LocalResponseNorm(3, alpha=0.1),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.AvgPool2D(3, 2),
            nn.AdaptiveAvgPool2D(1),
            nn.Flatten(),
            nn.Linear(8, 6),
            nn.Softmax(axis=-1),
        )

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "x": rng.standard_normal((4, 3, 15, 15), dtype=np.float32),
            "target": rng.standard_normal((4, 6), dtype=np.float32),
        }

    def forward(self, model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        return model(inputs["x"])

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.nn.functional.mse_loss(outputs, inputs["target"])
        import paddle

        return paddle.nn.functional.mse_loss(outputs, inputs["target"])

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        """RMSprop, whose smoothing both are told."""
        if framework == "torch":
            import torch

            return torch.optim.RMSprop(parameters, 0.001, alpha=0.95, eps=1e-6)
        import paddle

        return paddle.optimizer.RMSProp(0.001, rho=0.95, epsilon=1e-6, parameters=parameters)


class Sequences(Case):
    """Tokens through an embedding, a GRU, causal attention and a gated perceptron, written alike in both."""

    name = "sequences"

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Tokens(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embed = nn.Embedding(12, 16)
                self.gru = nn.GRU(16, 16, batch_first=True)
                self.attention = Attention()
                self.shift = Shift()
                self.scale = Scale()
                self.head = nn.Linear(16, 5)

            def forward(self, tokens: Any) -> Any:
                x, _ = self.gru(self.embed(tokens))
                x = self.scale(self.shift(self.attention(x)))
                return self.head(x)

        class Attention(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.qkv = nn.Linear(16, 48)

            def forward(self, x: Any) -> Any:
                q, k, v = self.qkv(x).chunk(3, dim=-1)
                scores = q @ k.transpose(-2, -1) / 4.0
                seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
                return scores.masked_fill(~seen, -1e9).softmax(-1) @ v

        class Shift(nn.Module):
            def forward(self, x: Any) -> Any:
                return torch.roll(x, 1, 1).cumsum(1)[:, 1:]

        class Scale(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.gamma = nn.Parameter(torch.ones(16))

            def forward(self, x: Any) -> Any:
                return x * self.gamma

        model = Tokens()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
        return model

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Tokens(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.embed = nn.Embedding(12, 16)
                self.gru = nn.GRU(16, 16)
                self.attention = Attention()
                self.shift = Shift()
                self.scale = Scale()
                self.head = nn.Linear(16, 5)

            def forward(self, tokens: Any) -> Any:
                x, _ = self.gru(self.embed(tokens))
                x = self.scale(self.shift(self.attention(x)))
                return self.head(x)

        class Attention(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.qkv = nn.Linear(16, 48)

            def forward(self, x: Any) -> Any:
                q, k, v = self.qkv(x).chunk(3, axis=-1)
                scores = paddle.matmul(q, k, transpose_y=True) / 4.0
                seen = paddle.tril(paddle.ones(scores.shape[-2:])).astype("bool")
                return paddle.matmul(nn.functional.softmax(scores.masked_fill(~seen, -1e9)), v)

        class Shift(nn.Layer):
            def forward(self, x: Any) -> Any:
                return paddle.roll(x, 1, 1).cumsum(1)[:, 1:]

        class Scale(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.gamma = self.create_parameter([16])

            def forward(self, x: Any) -> Any:
                return x * self.gamma

        return Tokens()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"tokens": rng.integers(0, 12, (3, 6))}

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        return (outputs**2).mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, 0.01)
        import paddle

        return paddle.optimizer.SGD(0.01, parameters=parameters)


class AdamWSteps(Case):
    """A token, a norm and two Linears through four steps of the twins' optimizers, at a rate that moves."""

    name = "adamw_steps"
    optimizer_name = "adamw"
    steps = 4
    rate = 0.001
    decay = 0.1

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Perceptron(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.cls_token = nn.Parameter(torch.ones(1, 1, 6))
                self.norm = nn.LayerNorm(6)
                self.fc1, self.fc2 = nn.Linear(6, 6), nn.Linear(6, 6)

            def forward(self, x: Any) -> Any:
                return self.fc2(self.fc1(self.norm(x) + self.cls_token).tanh())

        model = Perceptron()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
        return model

    def reproduced(self) -> Any:
        from paddle import nn

        class Perceptron(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.cls_token = self.create_parameter([1, 1, 6])
                self.norm = nn.LayerNorm(6)
                self.fc1, self.fc2 = nn.Linear(6, 6), nn.Linear(6, 6)

            def forward(self, x: Any) -> Any:
                return self.fc2(self.fc1(self.norm(x) + self.cls_token).tanh())

        return Perceptron()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 3, 6), dtype=np.float32)}

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        return (outputs**2).mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        build = twin(framework, "training.optimizer").build_optimizer
        return build(self.optimizer_name, parameters, self.rate, self.decay)

    def schedule(self, optimizer: Any, step: int, framework: str) -> None:
        rate = self.rate * (1.0, 0.5, 1.5, 0.7)[step % 4]
        if framework == "torch":
            optimizer.param_groups[0]["lr"] = rate
        else:
            optimizer.set_lr(rate)


class SgdSteps(AdamWSteps):
    """The same with SGD and momentum."""

    name = "sgd_steps"
    optimizer_name = "sgd"
    rate = 0.01


class LarsSteps(AdamWSteps):
    """The same with LARS."""

    name = "lars_steps"
    optimizer_name = "lars"
    rate = 0.3


class LabelledSamples(Case):
    """Samples whose labels are unevenly many and in no order, and the accuracy of a Linear on them."""

    name = "labelled_samples"
    labels = (2, 0, 1, 0, 2, 0, 0, 1, 0, 2, 0)
    splits = ("train", "val")
    data_samples = 20

    def reference(self) -> Any:
        import torch

        return torch.nn.Linear(4, 3)

    def reproduced(self) -> Any:
        import paddle

        return paddle.nn.Linear(4, 3)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((5, 4), dtype=np.float32)}

    def dataset(self, framework: str, split: str) -> list[tuple[Any, np.ndarray]]:
        features = np.random.default_rng(3).standard_normal((len(self.labels), 4)).astype(np.float32)
        return [(row, np.int64(label)) for row, label in zip(features, self.labels, strict=True)]

    def metric(self, outputs: Any, labels: np.ndarray, framework: str) -> dict[str, float]:
        return {"top1": 100.0 * float((np.asarray(outputs).argmax(axis=1) == labels).mean())}
