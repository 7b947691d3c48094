"""Two branches whose results are joined; in the port one of them is too short for that."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class Branches(Case):
    """Convolutions, of which the wide one has no padding in the port."""

    name = "branches"
    float64_train_steps = 2

    def reference(self) -> Any:
        import torch

        return _branches(torch.nn, torch.nn.Module, torch.nn.Conv1d, torch.cat, 1)

    def reproduced(self) -> Any:
        import paddle

        return _branches(paddle.nn, paddle.nn.Layer, paddle.nn.Conv1D, paddle.concat, 0)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 3, 6), dtype=np.float32)}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs**2).mean()

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> dict[str, Any]:
        x = np.ones((4, 3, 6), np.float64)
        if framework == "torch":
            import torch

            record("loss", float(model(torch.as_tensor(x, dtype=next(model.parameters()).dtype)).mean()))
        else:
            import paddle

            record("loss", float(model(paddle.to_tensor(x, dtype=model.parameters()[0].dtype)).mean()))
        return {}


def _branches(nn: Any, base: type, convolution: Any, join: Any, padding: int) -> Any:
    class Joined(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.narrow, self.wide = convolution(3, 3, 1), convolution(3, 3, 3, padding=padding)

        def forward(self, x: Any) -> Any:
            narrow, wide = self.narrow(x), self.wide(x)
            concat = join([narrow, wide], 1)
            return concat

    return Joined()
