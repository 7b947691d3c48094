"""A quantisation-aware model: rounding to a grid is a step, which float32 crosses where float64 does not."""

from __future__ import annotations

from typing import Any

from twinalign import Case


class Quantised(Case):
    """The port adds an `offset` and takes it away again, so that float32 carries some activations across a step.

    `fault`: `half` rounds the port's activations to float16 in float32 runs, which is more than any step explains;
    `floor` cuts off where the reference rounds.
    """

    name = "quantised"
    fault = ""
    offset = 16

    def reference(self) -> Any:
        import torch

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = torch.nn.Linear(64, 256)
                self.second = torch.nn.Linear(256, 32)

            def forward(self, x: Any) -> Any:
                hidden = torch.relu(self.first(x))
                scale = hidden.detach().abs().max() / 127
                return self.second(hidden + (torch.round(hidden / scale) * scale - hidden).detach())

        return Net()

    def reproduced(self) -> Any:
        import paddle

        fault, offset = self.fault, float(self.offset)

        class Net(paddle.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.first = paddle.nn.Linear(64, 256)
                self.second = paddle.nn.Linear(256, 32)

            def forward(self, x: Any) -> Any:
                hidden = (self.first(x) + offset) - offset
                if fault == "half" and hidden.dtype == paddle.float32:
                    hidden = hidden.astype("float16").astype("float32")
                hidden = paddle.nn.functional.relu(hidden)
                scale = hidden.detach().abs().max() / 127
                steps = paddle.floor(hidden / scale) if fault == "floor" else paddle.round(hidden / scale)
                return self.second(hidden + (steps * scale - hidden).detach())

        return Net()

    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.standard_normal((256, 64), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs**2).mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, lr=0.1)
        import paddle

        return paddle.optimizer.SGD(0.1, parameters=parameters)
