"""A block that holds in two layers what the reference packs into one, so that its own code uses their weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class CalledOnce(OneNet):
    """The port stops the gradients of both weights."""

    calls = 1

    def net(self, root: Any, framework: str) -> Any:
        kind, port, calls = root.nn, framework == "paddle", self.calls

        class Block(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                if port:
                    self.q, self.k = kind.Linear(4, 4), kind.Linear(4, 4)
                else:
                    self.qk = kind.Linear(4, 8)

            def forward(self, x: Any) -> Any:
                if not port:
                    q, k = self.qk(x).chunk(2, -1)
                    return root.tanh(q) * k
                q, k = (kind.functional.linear(x, one.weight.detach(), one.bias) for one in (self.q, self.k))
                return root.tanh(q) * k

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.block = kind.Linear(4, 4), Block()

            def forward(self, x: Any) -> Any:
                x = self.enter(x)
                for _ in range(calls):
                    x = self.block(x)
                return x

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 4), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs**2).mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, lr=0.1)
        import paddle

        return paddle.optimizer.SGD(0.1, parameters)


class CalledTwice(CalledOnce):
    """The gradients are sums over both calls."""

    calls = 2
