"""A pair of models that start from the same distributions, of many families, in paddle with its own initialisers."""

import math
from typing import Any

import numpy as np

from twinalign import Case

WIDTH, VOCABULARY, IMAGE = 48, 40, 16


def position_table() -> np.ndarray:
    """Sines and cosines of positions, [1, 16, WIDTH], float32."""
    angles = np.arange(16)[:, None] / 100.0 ** (np.arange(WIDTH // 2) / (WIDTH // 2))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[None].astype(np.float32)


class AlikeStart(Case):
    """Words and pictures, so that embeddings, convolutions and norms are there."""

    def reference(self) -> Any:
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.table = nn.Parameter(torch.from_numpy(position_table()))
                self.words = nn.Embedding(VOCABULARY, WIDTH)
                self.stem = nn.Conv2d(3, WIDTH, 4, stride=4)
                self.norm = nn.BatchNorm2d(WIDTH)
                self.deep = nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1, bias=False)
                self.square = nn.Linear(2 * WIDTH, WIDTH)
                self.turn = nn.Linear(WIDTH, WIDTH, bias=False)
                self.last_norm = nn.LayerNorm(WIDTH)
                self.head = nn.Linear(WIDTH, 30)
                nn.init.normal_(self.words.weight, std=0.02)
                nn.init.kaiming_normal_(self.stem.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(self.stem.bias)
                nn.init.kaiming_normal_(self.deep.weight, mode="fan_out", nonlinearity="relu")
                nn.init.orthogonal_(self.turn.weight)
                nn.init.trunc_normal_(self.head.weight, std=0.02)
                nn.init.zeros_(self.head.bias)

            def forward(self, words: Any, images: Any) -> Any:
                seen = torch.relu(self.deep(self.norm(self.stem(images)))).flatten(2).transpose(1, 2)
                mixed = self.turn(self.square(seen)) + self.words(words) + self.table
                return self.head(self.last_norm(mixed))

        return Model()

    def reproduced(self) -> Any:
        import paddle
        from paddle import nn
        from paddle.nn import initializer as start

        def uniform(fan_in: int) -> Any:
            return start.Uniform(-1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

        class Model(nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                table = start.Assign(position_table())
                self.table = self.create_parameter([1, 16, WIDTH], default_initializer=table)
                self.words = nn.Embedding(VOCABULARY, WIDTH, weight_attr=start.Normal(0.0, 0.02))
                self.stem = nn.Conv2D(3, WIDTH, 4, stride=4, weight_attr=start.Normal(0.0, math.sqrt(2 / WIDTH / 16)))
                self.norm = nn.BatchNorm2D(WIDTH)
                by_fan_out = start.Normal(0.0, math.sqrt(2 / (2 * WIDTH) / 9))
                self.deep = nn.Conv2D(WIDTH, 2 * WIDTH, 3, padding=1, weight_attr=by_fan_out, bias_attr=False)
                own = uniform(2 * WIDTH)
                self.square = nn.Linear(2 * WIDTH, WIDTH, weight_attr=own, bias_attr=own)
                self.turn = nn.Linear(WIDTH, WIDTH, weight_attr=start.Orthogonal(), bias_attr=False)
                self.last_norm = nn.LayerNorm(WIDTH)
                self.head = nn.Linear(WIDTH, 30, weight_attr=start.TruncatedNormal(std=0.02))

            def forward(self, words: Any, images: Any) -> Any:
                seen = paddle.nn.functional.relu(self.deep(self.norm(self.stem(images)))).flatten(2)
                mixed = self.turn(self.square(seen.transpose([0, 2, 1]))) + self.words(words) + self.table
                return self.head(self.last_norm(mixed))

        return Model()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        images = rng.standard_normal((2, 3, IMAGE, IMAGE)).astype(np.float32)
        return {"words": rng.integers(0, VOCABULARY, (2, 16)), "images": images}
