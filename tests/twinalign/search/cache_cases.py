"""Models that are called twice with what they keep: tensors in the port, an object in the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Kept:
    """The reference's cache."""

    def __init__(self) -> None:
        self.keys: Any = None


class Cached(OneNet):
    """Keys of the first call are read by the second; both models are the same."""

    scale = 2.0

    def net(self, root: Any, framework: str) -> Any:
        kind, port, scale = root.nn, framework == "paddle", self.scale if framework == "paddle" else 2.0

        class Attention(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.key, self.value = kind.Linear(4, 4), kind.Linear(4, 4)

            def mixed(self, x: Any, keys: Any) -> Any:
                scores = root.matmul(x, keys.transpose([0, 2, 1]) if port else keys.transpose(1, 2))
                return self.value(root.matmul(root.nn.functional.softmax(scores, -1), keys))

            def forward(self, x: Any, kept: Any = None) -> Any:
                keys = self.key(x)
                if port:
                    keys = keys if kept is None else root.concat([kept, keys], 1)
                    return self.mixed(x, keys), keys
                kept.keys = keys if kept.keys is None else root.cat([kept.keys, keys], 1)
                return self.mixed(x, kept.keys)

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.attention, self.leave = kind.Linear(4, 4), Attention(), kind.Linear(4, 4)
                if port:
                    self.table = root.arange(32, dtype="float64").reshape([8, 4]) * 0.1
                else:
                    self.register_buffer("table", root.arange(32).reshape(8, 4).double() * 0.1, persistent=False)

            def forward(self, x: Any, kept: Any = None) -> Any:
                x = self.enter(x)
                if port:
                    x, kept = self.attention(x * scale + self.table[: x.shape[1]].astype(x.dtype), kept)
                    return self.leave(x), kept
                kept = Kept() if kept is None else kept
                self.table = self.table.to(x.dtype)
                x = self.attention(x * 2.0 + self.table[: x.shape[1]], kept)
                return self.leave(x), kept

        return Net()

    def forward(self, model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        first, kept = model(inputs["x"][:, :3])
        second, _ = model(inputs["x"][:, 3:], kept)
        return first, second

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 5, 4), dtype="float32")}


class CachedUnscaled(Cached):
    """The port does not scale what goes into the attention."""

    scale = 1.0


class MaskForEachHead(OneNet):
    """The port's mask stands once for each head of each sample, joined, and hides with float32's least number."""

    bent = False

    def net(self, root: Any, framework: str) -> Any:
        kind, port, bent = root.nn, framework == "paddle", self.bent and framework == "paddle"

        class Attention(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.value = kind.Linear(4, 4)

            def forward(self, x: Any, mask: Any) -> Any:
                heads = (
                    x.reshape([-1, 5, 2, 2]).transpose([0, 2, 1, 3]) if port else x.view(-1, 5, 2, 2).transpose(1, 2)
                )
                turned = heads.transpose([0, 1, 3, 2]) if port else heads.transpose(2, 3)
                scores = root.matmul(heads, turned)
                scores = scores.reshape([-1, 5, 5]) + mask if port else scores + mask
                weights = root.nn.functional.softmax(scores, -1)
                mixed = root.matmul(weights.reshape([-1, 2, 5, 5]) if port else weights, heads)
                mixed = mixed.transpose([0, 2, 1, 3]) if port else mixed.transpose(1, 2)
                return self.value(mixed.reshape([-1, 5, 4]) if port else mixed.reshape(-1, 5, 4))

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.attention = kind.Linear(4, 4), Attention()

            def forward(self, x: Any, seen: Any) -> Any:
                x = self.enter(x)
                if port:
                    mask = (1 - seen).reshape([-1, 1, 1, 5]) * float(np.finfo(np.float32).min)
                    mask = mask.expand([-1, 2, 5, 5]).reshape([-1, 5, 5])
                    return root.tanh(self.attention(x.sin() if bent else x, mask))
                mask = (1 - seen).view(-1, 1, 1, 5).expand(-1, 1, 5, 5) * root.finfo(x.dtype).min
                return root.tanh(self.attention(x, mask))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        seen = np.ones((3, 5), "float32")
        seen[:, 3:] = rng.permutation(3)[:, None] > 0
        return {"x": rng.standard_normal((3, 5, 4), dtype="float32"), "seen": seen}


class MaskForEachHeadBent(MaskForEachHead):
    """And the port changes what it gives to the attention."""

    bent = True
