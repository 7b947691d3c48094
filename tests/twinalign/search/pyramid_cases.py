"""Attention over a reduced map: the port is given height and width, and computes its norm in another layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class Pyramid(Case):
    """The port's norm runs on `[B, H, W, C]`, and its result is taken apart in the wrong order behind that."""

    name = "pyramid"

    def reference(self) -> Any:
        from torch import nn

        class Attention(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.q, self.kv = nn.Linear(6, 6), nn.Linear(6, 12)
                self.sr, self.norm, self.proj = nn.Conv2d(6, 6, 2, 2), nn.LayerNorm(6), nn.Linear(6, 6)

            def forward(self, x: Any, feat_size: Any) -> Any:
                b, _, c = x.shape
                q = self.q(x)
                x = x.permute(0, 2, 1).reshape(b, c, *feat_size)
                x = self.sr(x).reshape(b, c, -1).permute(0, 2, 1)
                x = self.norm(x)
                k, v = self.kv(x).reshape(b, -1, 2, c).permute(2, 0, 1, 3).unbind(0)
                weights = (q @ k.transpose(-2, -1) * 0.4).softmax(dim=-1)
                return self.proj(weights @ v)

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.attn, self.head = Attention(), nn.Linear(6, 3)

            def forward(self, x: Any) -> Any:
                return self.head(self.attn(x, (4, 6)))

        return Model()

    def reproduced(self) -> Any:
        from paddle import nn

        class Attention(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.q, self.kv = nn.Linear(6, 6), nn.Linear(6, 12)
                self.sr, self.norm, self.proj = nn.Conv2D(6, 6, 2, 2), nn.LayerNorm(6), nn.Linear(6, 6)

            def forward(self, x: Any, height: int, width: int) -> Any:
                b, _, c = x.shape
                q = self.q(x)
                x_ = x.transpose([0, 2, 1]).reshape([b, c, height, width])
                x_ = self.sr(x_)
                h_, w_ = x_.shape[-2:]
                x_ = self.norm(x_.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2])
                x_ = x_.reshape([b, h_ * w_, c])
                kv = self.kv(x_)
                kv = kv.reshape([b, h_ * w_, 2, c]).transpose([2, 0, 1, 3])
                k, v = kv[0], kv[1]
                weights = nn.functional.softmax(q @ k.transpose([0, 2, 1]) * 0.4, axis=-1)
                return self.proj(weights @ v)

        class Model(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.attn, self.head = Attention(), nn.Linear(6, 3)

            def forward(self, x: Any) -> Any:
                return self.head(self.attn(x, 4, 6))

        return Model()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 24, 6), dtype="float32")}


class Patches(Case):
    """The port joins height and width where the reference does not, and scatters the values when it does."""

    name = "patches"

    def reference(self) -> Any:
        from torch import nn

        class Embed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.proj, self.norm = nn.Conv2d(3, 5, 2, 2), nn.LayerNorm(5)

            def forward(self, x: Any) -> Any:
                return self.norm(self.proj(x).permute(0, 2, 3, 1))

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embed, self.block, self.head = Embed(), nn.Linear(5, 5), nn.Linear(5, 2)

            def forward(self, x: Any) -> Any:
                x = self.embed(x)
                return self.head(self.block(x.reshape(x.shape[0], -1, x.shape[-1])).relu())

        return Model()

    def reproduced(self) -> Any:
        from paddle import nn

        class Embed(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.proj, self.norm = nn.Conv2D(3, 5, 2, 2), nn.LayerNorm(5)

            def forward(self, x: Any) -> Any:
                x = self.proj(x).flatten(2)
                return self.norm(x.reshape([x.shape[0], x.shape[2], x.shape[1]]))

        class Model(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.embed, self.block, self.head = Embed(), nn.Linear(5, 5), nn.Linear(5, 2)

            def forward(self, x: Any) -> Any:
                return self.head(nn.functional.relu(self.block(self.embed(x))))

        return Model()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 3, 8, 6), dtype="float32")}


class Scattered(Patches):
    """As above, and a line of the port does it."""

    def reproduced(self) -> Any:
        from paddle import nn

        class Embed(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.proj, self.norm = nn.Conv2D(3, 5, 2, 2), nn.LayerNorm(5)

            def forward(self, x: Any) -> Any:
                x = self.proj(x)
                x = x.flatten(2).transpose([0, 2, 1])
                x = self.norm(x.reshape([x.shape[0], x.shape[2], x.shape[1]]).transpose([0, 2, 1]))
                return x

        made = super().reproduced()
        made.embed = Embed()
        return made


class Exchanged(Case):
    """The port calls each of two like norms where the other belongs; no line of it differs."""

    name = "exchanged"

    def reference(self) -> Any:
        import torch

        return _two_norms(torch.nn, torch.nn.Module, "one", "two")

    def reproduced(self) -> Any:
        import paddle

        return _two_norms(paddle.nn, paddle.nn.Layer, "two", "one")

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 4, 6), dtype="float32")}


def _two_norms(nn: Any, base: Any, first: str, second: str) -> Any:
    class Block(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.linear = nn.LayerNorm(6), nn.LayerNorm(6), nn.Linear(6, 6)
            if first == "one":
                nn.init.normal_(self.one.weight)
                nn.init.normal_(self.two.weight)

        def forward(self, x: Any) -> Any:
            steps = [getattr(self, first), self.linear, getattr(self, second)]
            for step in steps:
                x = x + step(x)
            return x

    class Model(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.block, self.head = Block(), nn.Linear(6, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.block(x))

    return Model()


class Biased(Case):
    """The port's first attention hands on its bias with the mask in it, and has an axis of the bias wrong."""

    name = "biased"
    turned = True

    def reference(self) -> Any:
        import torch

        return _biased(torch, torch.nn.Module, False, False)

    def reproduced(self) -> Any:
        import paddle

        return _biased(paddle, paddle.nn.Layer, True, self.turned)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 5, 6), dtype="float32")}


def _biased(framework: Any, base: Any, masked: bool, turned: bool) -> Any:
    nn = framework.nn

    class Attention(base):  # type: ignore[misc]
        def __init__(self, has_bias: bool) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(6, 6) for _ in range(4))
            if has_bias:
                self.bias = nn.Embedding(5, 5)

        def forward(self, x: Any, mask: Any, bias: Any = None) -> Any:
            q, k, v = self.q(x), self.k(x), self.v(x)
            if bias is None:
                bias = self.bias(framework.arange(5))
                bias = (bias.mT if turned else bias).unsqueeze(0)
                bias = bias + mask if masked else bias
            scores = framework.matmul(q, k.mT) + (bias if masked else bias + mask)
            return self.o(framework.matmul(nn.functional.softmax(scores, -1), v)), bias

    class Model(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.head = Attention(True), Attention(False), nn.Linear(6, 3)

        def forward(self, x: Any) -> Any:
            mask = framework.triu(framework.full([2, 5, 5], -1e4, dtype=x.dtype), 1)
            x, bias = self.one(x, mask)
            return self.head(self.two(x, mask, bias)[0])

    return Model()
