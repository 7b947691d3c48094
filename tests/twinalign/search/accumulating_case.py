"""A training that accumulates gradients, clips them once and averages its network; the port's loop can go wrong."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from twinalign import Case

PASSES, WIDTH = 2, 6


class Accumulating(Case):
    """The first of two groups of parameters has a smaller rate; nothing sets the model's mode."""

    name = "accumulating"
    float64_train_steps = 5
    fault = ""

    def reference(self) -> Any:
        return network("torch")

    def reproduced(self) -> Any:
        return network("paddle")

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, WIDTH), dtype=np.float32)}

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> dict[str, Any]:
        fault, rng, used = self.fault if framework == "paddle" else "", np.random.default_rng(3), tools(framework)
        move(model, 0.0)
        first, rest = list(model.body.parameters())[:1], list(model.body.parameters())[1:]
        if framework == "torch":
            optimizer = used.optim.SGD([{"params": first, "lr": 0.02}, {"params": rest}], lr=0.1, momentum=0.9)
        else:
            groups = [{"params": first, "learning_rate": 0.2}, {"params": rest}]
            optimizer = used.optimizer.Momentum(0.1, 0.9, parameters=groups)
        dtype = first[0].dtype
        for step in range(steps or 6):
            for _ in range(PASSES):
                x, y = (used.to_tensor(rng.standard_normal(shape)) for shape in ((4, WIDTH), (4, 1)))
                loss = ((model(x.astype(dtype)) - y.astype(dtype)) ** 2).mean() / PASSES
                loss.backward()
                if fault == "clipped_each_pass":
                    used.nn.utils.clip_grad_norm_([*first, *rest], 0.2)
            if fault != "clipped_each_pass":
                used.nn.utils.clip_grad_norm_([*first, *rest], 0.2)
            for _ in range(2 if fault == "step_twice" else 1):
                optimizer.step()
            optimizer.zero_grad() if framework == "torch" else optimizer.clear_grad()
            at = step + 1 if fault == "next" else step
            move(model, 0.99 if fault == "constant" else min(0.99, (1 + at) / (10 + at)))
            record("loss", loss)
        return {"error": (float(loss), 1)}


def tools(framework: str) -> Any:
    """The framework; torch's tensors get what paddle's have."""
    used = importlib.import_module(framework)
    if framework == "torch":
        used.to_tensor, used.Tensor.astype = used.as_tensor, used.Tensor.to
    return used


def network(framework: str) -> Any:
    nn = importlib.import_module(framework).nn

    def part() -> Any:
        return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 1))

    class Network(nn.Module if framework == "torch" else nn.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body, self.average = part(), part()
            for parameter in self.average.parameters():
                parameter.stop_gradient = True
                parameter.requires_grad = False

        def forward(self, x: Any) -> Any:
            return self.body(x)

    return Network()


def move(model: Any, m: float) -> None:
    for average, own in zip(model.average.parameters(), model.body.parameters(), strict=True):
        moved = average.detach() * m + own.detach() * (1 - m)
        average.set_value(moved) if hasattr(average, "set_value") else average.data.copy_(moved)
