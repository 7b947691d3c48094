"""A small model whose paddle side has optimizers and schedules that are really wrong, one at a time."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from twinalign import Case

sys.path.insert(0, str(Path(__file__).parent))

RATE, DECAY = 0.01, 0.1
SHAPES = {
    "first.weight": (5, 6),
    "first.bias": (5,),
    "norm.weight": (5,),
    "norm.bias": (5,),
    "second.weight": (5, 5),
    "third.weight": (5, 5),
    "pos_embed": (1, 5),
}


def torch_model() -> Any:
    import torch

    model = torch.nn.Module()
    model.first, model.norm = torch.nn.Linear(6, 5), torch.nn.LayerNorm(5)
    model.second, model.third = torch.nn.Linear(5, 5, bias=False), torch.nn.Linear(5, 5, bias=False)
    model.pos_embed = torch.nn.Parameter(torch.zeros(1, 5))
    return model


def paddle_model() -> Any:
    import paddle

    model = paddle.nn.Layer()
    model.first, model.norm = paddle.nn.Linear(6, 5), paddle.nn.LayerNorm(5)
    model.second, model.third = paddle.nn.Linear(5, 5, bias_attr=False), paddle.nn.Linear(5, 5, bias_attr=False)
    model.pos_embed = model.create_parameter([1, 5])
    return model


class Steps(Case):
    """Chosen by options: what the reference has, and what is wrong in the port."""

    name = "steps"
    kind = "adamw"
    fault = ""
    scheduled = ""
    steps = 3
    warmup = 3
    total = 12
    peak = 0.02
    m = 0.99
    wave = 0.1

    def reference(self) -> Any:
        return torch_model()

    def reproduced(self) -> Any:
        return paddle_model()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 6)).astype(np.float32)}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return outputs.mean()

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        import optimizer_faults

        self.cosine = optimizer_faults.cosine  # as cases do that keep there what their schedule asks
        if framework == "torch":
            return optimizer_faults.REFERENCES[self.kind](parameters)
        return optimizer_faults.port(self.kind, self.fault, parameters)

    def schedule(self, optimizer: Any, step: int, framework: str) -> dict[str, float] | None:
        if not self.scheduled:
            return None
        import optimizer_faults

        fault = self.fault if framework == "paddle" else ""
        if fault in optimizer_faults.SCHEDULES:
            rate, momentum = optimizer_faults.SCHEDULES[fault](step, self)
        elif self.fault == "schedule_setting":
            rate, momentum = optimizer_faults.wavy(step, self, self.wave)
        else:
            rate, momentum = self.cosine(step, self)
        if framework == "torch":
            for group in optimizer.param_groups:
                group["lr"] = rate
        else:
            optimizer.set_lr(float(rate))
        return {"momentum": momentum, "rate": rate}  # the rate under a second name


def cosine(step: float, case: Steps, warmup: int | None = None, total: int | None = None) -> float:
    warmup, total = case.warmup if warmup is None else warmup, total or case.total
    if step < warmup:
        return case.peak * step / warmup
    return case.peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
