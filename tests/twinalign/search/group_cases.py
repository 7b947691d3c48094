"""A training whose optimizer has parameter groups; the port's groups can have other settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case

RATE, DECAY = 0.01, 0.05


class Grouped(Case):
    """The trunk steps at a tenth of the rate, and nothing of one dimension is decayed."""

    name = "grouped"
    float64_train_steps = 4
    fault = ""
    """In the port: `one` group for all, `half` and `layer` give the trunk or its second layer another rate, `norm` and
    `bias` are decayed as well; `order` is none: the groups stand in another order."""
    decayed = True
    """Whether there is any decay."""

    def reference(self) -> Any:
        from torch import nn

        return _network(nn)

    def reproduced(self) -> Any:
        from paddle import nn

        return _network(nn)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((6, 5), dtype=np.float32)}

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> dict[str, Any]:
        if framework == "torch":
            import torch

            kind, tensor = next(model.parameters()).dtype, torch.as_tensor
            optimizer: Any = torch.optim.AdamW(self.groups(model, RATE, "lr", ""), lr=RATE)
        else:
            import paddle

            kind, tensor = model.parameters()[0].dtype, paddle.to_tensor
            groups = self.groups(model, 1.0, "learning_rate", self.fault)
            if self.fault == "one":
                groups = model.parameters()
            elif self.fault == "order":
                groups = groups[::-1]
            optimizer = paddle.optimizer.AdamW(RATE, parameters=groups, weight_decay=DECAY if self.decayed else 0.0)
        rng = np.random.default_rng(0)
        for _ in range(steps or 4):
            x = tensor(rng.standard_normal((6, 5)), dtype=kind)
            loss = (model(x) ** 2).mean()
            record("loss", loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad() if framework == "torch" else optimizer.clear_grad()
        return {}

    def groups(self, model: Any, rate: float, key: str, fault: str) -> list[dict[str, Any]]:
        def factor(name: str) -> float:
            if name.startswith("3.") or (fault == "layer" and name.startswith("2.")):
                return 1.0
            return 0.2 if fault == "half" else 0.1

        def decay(name: str, parameter: Any) -> float:
            also = {"norm": name == "1.weight", "bias": name.endswith("bias")}.get(fault, False)
            return DECAY if self.decayed and (len(parameter.shape) > 1 or also) else 0.0

        return [
            {"params": [p], key: rate * factor(name), "weight_decay": decay(name, p)}
            for name, p in model.named_parameters()
        ]


def _network(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 7), nn.Linear(7, 1))
