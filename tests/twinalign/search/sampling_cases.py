"""A metric that returns what a method of the model draws step by step, wrongly in the port."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Sampled(OneNet):
    """Nothing but the sampler differs, which returns an array."""

    def net(self, root: Any, framework: str) -> Any:
        kind, port = root.nn, framework == "paddle"

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner = kind.Linear(4, 4)

            def forward(self, x: Any) -> Any:
                return self.inner(x).tanh()

            def sample(self, x: Any, guidance: float = 1.5) -> Any:
                for _ in range(2):
                    made, plain = self.inner(x), self.inner(0 * x)
                    x = (1 + guidance) * made - guidance * plain if port else guidance * made + (1 - guidance) * plain
                return x

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 4), dtype="float32")}

    def evaluate(self, model: Any, framework: str, dtype: str) -> dict[str, Any]:
        x = np.linspace(-1, 1, 12).reshape(3, 4).astype(dtype)
        if framework == "torch":
            import torch

            return {"sample": model.sample(torch.from_numpy(x)).numpy()}
        import paddle

        return {"sample": model.sample(paddle.to_tensor(x)).numpy()}
