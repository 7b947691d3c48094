"""A model with a recurrent mode and a decoding function, which only `Case.observe` runs; the port's can be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class Observed(Case):
    """`fault` is what the port has: `step`, `decode`, `order`, or a layer that is wrong itself."""

    name = "observed"
    fault = ""
    once = False
    """Whether inputs of other steps cannot be observed."""

    def reference(self) -> Any:
        return torch_model()

    def reproduced(self) -> Any:
        return paddle_model(self.fault)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 4, 6), dtype=np.float32)}

    def observe(self, model: Any, inputs: Any, framework: str) -> Any:
        x = inputs["x"]
        if self.once:
            first = self.inputs(np.random.default_rng([self.seed, 0]))["x"]
            if abs(float(x[0, 0, 0]) - first[0, 0, 0]) > 1e-3:
                raise ValueError("other inputs")
        return {"whole": model(x), "recurrent": model.recurrent(x), "decoded": model.decode(x)}


def torch_model() -> Any:
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            return self.outer(torch.tanh(self.inner(x)))

        def step(self, x: Any, state: Any) -> Any:
            return 0.9 * state + self.inner(x)

        def recurrent(self, x: Any) -> Any:
            state, found = torch.zeros_like(x[:, 0]), []
            for position in range(x.shape[1]):
                state = self.step(x[:, position], state)
                found.append(self.outer(state))
            return torch.stack(found, dim=1)

        def decode(self, x: Any, temperature: float = 0.7) -> Any:
            return torch.softmax(self.forward(x)[:, -1] / temperature, dim=-1)

    return Model()


def paddle_model(fault: str) -> Any:
    import paddle
    from paddle import nn

    class Model(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            return self.outer(paddle.tanh(self.inner(x)))

        def step(self, x: Any, state: Any) -> Any:
            return 0.9 * state + self.inner(x)

        def recurrent(self, x: Any) -> Any:
            state, found = paddle.zeros_like(x[:, 0]), []
            for position in range(x.shape[1]):
                state = self.step(x[:, position], state)
                found.append(self.outer(state))
            return paddle.stack(found, axis=1)

        def decode(self, x: Any, temperature: float = 0.7) -> Any:
            return nn.functional.softmax(self.forward(x)[:, -1] / temperature, axis=-1)

    class Stepping(Model):
        def step(self, x: Any, state: Any) -> Any:
            return 0.9 * (state + self.inner(x))

    class Decoding(Model):
        def decode(self, x: Any, temperature: float = 0.8) -> Any:
            return nn.functional.softmax(self.forward(x)[:, -1] / temperature, axis=-1)

    class Ordered(Model):
        def recurrent(self, x: Any) -> Any:
            state, found = paddle.zeros_like(x[:, 0]), []
            for position in range(x.shape[1]):
                found.append(self.outer(state))
                state = self.step(x[:, position], state)
            return paddle.stack(found, axis=1)

    class Wrong(Model):
        def forward(self, x: Any) -> Any:
            return self.outer(paddle.sin(self.inner(x)))

    return {"step": Stepping, "decode": Decoding, "order": Ordered, "layer": Wrong}.get(fault, Model)()
