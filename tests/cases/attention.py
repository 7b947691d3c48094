"""Ports whose attention keeps in three matrices what the reference packs in one, and the other way round."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class Attention(Case):
    """torch.nn.MultiheadAttention and paddle.nn.MultiHeadAttention; a training too."""

    steps = 2
    float64_train_steps = 2

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.attn = nn.MultiheadAttention(16, 4, batch_first=True)
                self.out = nn.Linear(16, 3)

            def forward(self, x: torch.Tensor) -> Any:
                return self.out(self.attn(x, x, x)[0])

        return Net()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.attn = nn.MultiHeadAttention(16, 4)
                self.out = nn.Linear(16, 3)

            def forward(self, x: paddle.Tensor) -> Any:
                return self.out(self.attn(x, x, x))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 5, 16), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs * outputs).mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        import paddle

        return paddle.optimizer.Momentum(0.1, parameters=parameters, momentum=0.9)

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> Any:
        if framework == "torch":
            from torch import tensor
        else:
            from paddle import to_tensor as tensor
        parameters = list(model.parameters())
        optimizer = self.optimizer([p for p in parameters if not getattr(p, "stop_gradient", False)], framework)
        model.train()
        for step in range(steps or 4):
            inputs = self.inputs(np.random.default_rng(step)).values()
            loss = self.loss(model(*(tensor(x, dtype=parameters[0].dtype) for x in inputs)), {}, framework)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad() if framework == "torch" else optimizer.clear_grad()
            record("loss", float(loss))
        return {}


class SwappedProjections(Attention):
    """A port that takes the queries' projection for the keys' and the other way round."""

    def reproduced(self) -> Any:
        from paddle import nn

        class Swapped(nn.MultiHeadAttention):
            def forward(self, *arguments: Any) -> Any:
                own = self._sub_layers
                own["q_proj"], own["k_proj"] = own["k_proj"], own["q_proj"]
                try:
                    return super().forward(*arguments)
                finally:
                    own["q_proj"], own["k_proj"] = own["k_proj"], own["q_proj"]

        model = super().reproduced()
        model.attn = Swapped(16, 4)
        return model


class FrozenKeys(Attention):
    """A port whose keys' matrix does not learn."""

    def reproduced(self) -> Any:
        model = super().reproduced()
        model.attn.k_proj.weight.stop_gradient = True
        return model


class Transformer(Attention):
    """Encoder and decoder layers of both frameworks, in training mode."""

    train_mode = True

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encoder = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True)
                self.decoder = nn.TransformerDecoderLayer(16, 4, 24, dropout=0.0, batch_first=True)

            def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
                return self.decoder(y, self.encoder(x))

        return Net()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn

        class Net(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.encoder = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0)
                self.decoder = nn.TransformerDecoderLayer(16, 4, 24, dropout=0.0)

            def forward(self, x: paddle.Tensor, y: paddle.Tensor) -> Any:
                return self.decoder(y, self.encoder(x))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        shapes = {"x": (2, 5, 16), "y": (2, 3, 16)}
        return {name: rng.standard_normal(shape, dtype="float32") for name, shape in shapes.items()}


def _by_hand(framework: str, packed: bool) -> Any:
    """Attention written by hand, q, k and v in one Linear or in three."""
    if framework == "torch":
        import torch as lib
        from torch import nn

        base = nn.Module
    else:
        import paddle as lib
        from paddle import nn

        base = nn.Layer

    class Attn(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            if packed:
                self.qkv = nn.Linear(16, 48)
            else:
                self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
            self.proj = nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            if packed:
                joined = self.qkv(x)
                q, k, v = (joined[..., start : start + 16] for start in (0, 16, 32))
            else:
                q, k, v = self.q(x), self.k(x), self.v(x)
            scores = lib.einsum("bic,bjc->bij", q, k) / 4
            return self.proj(lib.matmul(lib.nn.functional.softmax(scores, -1), v))

    class Net(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.attn = Attn()
            self.out = nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.out(self.attn(x))

    return Net()


class ReferencePacks(Attention):
    """One Linear in the reference, three in the port."""

    def reference(self) -> Any:
        return _by_hand("torch", packed=True)

    def reproduced(self) -> Any:
        return _by_hand("paddle", packed=False)


class PortPacks(Attention):
    """Three Linear layers in the reference, one in the port."""

    def reference(self) -> Any:
        return _by_hand("torch", packed=False)

    def reproduced(self) -> Any:
        return _by_hand("paddle", packed=True)
