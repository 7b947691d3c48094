"""Sources of a small training in both frameworks, whose step is made in helper functions; parts can be replaced."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

_NUMBERS = itertools.count()
_CASE = """
import numpy as np

from twinalign import Case


class Helped(Case):
    name = "helped"
    float64_train_steps = 4
    code_packages = ("ref_net", "port_net")

    def reference(self):
        from ref_net import Net

        return Net()

    def reproduced(self):
        from port_net import Net

        return Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((6, 5), dtype="float32")}

    def train(self, framework, model, record, steps=None):
        rng = np.random.default_rng(0)
        batches = [rng.standard_normal((6, 5)) for _ in range(steps or 4)]
        if framework == "torch":
            from ref_net import train
        else:
            from port_net import train
        return train(model, batches, record)
"""

_TORCH = """
import torch
from torch import nn


class Center(nn.Module):
    def __init__(self, momentum=0.9):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("value", torch.zeros(3))

    @torch.no_grad()
    def update(self, y):
        self.value.mul_(self.momentum).add_(y.mean(0) * (1 - self.momentum))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.center = nn.Linear(5, 7), nn.Linear(7, 3), Center()

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))) - self.center.value


def update(model, optimizer, most=0.2):
    torch.nn.utils.clip_grad_norm_(model.parameters(), most)
    optimizer.step()


def train(model, batches, record):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model.train()
    for x in batches:
        y = model(torch.as_tensor(x, dtype=model.first.weight.dtype))
        loss = (y**2).mean()
        optimizer.zero_grad()
        loss.backward()
        update(model, optimizer)
        model.center.update(y)
        record("loss", float(loss))
    return {}
"""

_PADDLE = """
import paddle
from paddle import nn


class Center(nn.Layer):
    def __init__(self, momentum=0.9):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("value", paddle.zeros([3]))

    @paddle.no_grad()
    def update(self, y):
        self.value.set_value(self.value * self.momentum + y.mean(0) * (1 - self.momentum))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.center = nn.Linear(5, 7), nn.Linear(7, 3), Center()

    def forward(self, x):
        return self.second(paddle.tanh(self.first(x))) - self.center.value


def update(model, optimizer, most=0.2):
    clip(model.parameters(), most)
    optimizer.step()


def clip(parameters, most):
    gradients = [p.grad for p in parameters if p.grad is not None]
    total = paddle.sqrt(sum((g**2).sum() for g in gradients))
    scale = paddle.clip(most / (total + 1e-6), max=1.0)
    for p in parameters:
        if p.grad is not None:
            p.grad.set_value(p.grad * scale)


def train(model, batches, record):
    optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters())
    model.train()
    for x in batches:
        y = model(paddle.to_tensor(x, dtype=model.first.weight.dtype))
        loss = (y**2).mean()
        optimizer.clear_grad()
        loss.backward()
        update(model, optimizer)
        model.center.update(y)
        record("loss", float(loss))
    return {}
"""


def _replaced(text: str, parts: Mapping[str, str]) -> str:
    for old, new in parts.items():
        assert old in text
        text = text.replace(old, new)
    return text


def written(
    folder: Path,
    replaced: Mapping[str, str],
    in_reference: Mapping[str, str] | None = None,
    in_case: Mapping[str, str] | None = None,
) -> str:
    """The case in files of a folder; the port, the reference and the case itself with these parts replaced."""
    port, reference = _replaced(_PADDLE, replaced), _replaced(_TORCH, in_reference or {})
    names = {name: f"{name}_{next(_NUMBERS)}" for name in ("ref_net", "port_net")}  # one process imports several
    case = _replaced(_CASE, in_case or {})
    for name, other in names.items():
        case = case.replace(name, other)
    for name, text in (("case", case), (names["ref_net"], reference), (names["port_net"], port)):
        (folder / f"{name}.py").write_text(text.lstrip())
    return str(folder / "case.py")
