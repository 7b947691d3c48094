"""A small training by two optimizers in turn, as of a generator and its critic; the port has another setting of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case

BETA = 0.5


class Adversarial(Case):
    """Each optimizer has its own part; `wrong` names those whose first beta is another in the port."""

    name = "adversarial"
    float64_train_steps = 5
    wrong = ""

    def reference(self) -> Any:
        from torch import nn

        return _networks(nn, nn.Module)

    def reproduced(self) -> Any:
        from paddle import nn

        return _networks(nn, nn.Layer)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((6, 3), dtype=np.float32)}

    def train(self, framework: str, model: Any, record: Any, steps: int | None = None) -> dict[str, Any]:
        parts = {"critic": model.critic, "generator": model.generator}
        wrong = self.wrong.split() if framework == "paddle" else []
        betas = {name: 0.9 if name in wrong else BETA for name in parts}
        if framework == "torch":
            import torch

            kind = next(model.parameters()).dtype
            made = {n: torch.optim.Adam(p.parameters(), lr=0.01, betas=(betas[n], 0.999)) for n, p in parts.items()}
        else:
            import paddle

            kind = model.parameters()[0].dtype
            made = {n: paddle.optimizer.Adam(0.01, betas[n], parameters=p.parameters()) for n, p in parts.items()}
        tensor = torch.as_tensor if framework == "torch" else paddle.to_tensor
        rng = np.random.default_rng(0)
        for _ in range(steps or 5):
            for name, optimizer in made.items():
                noise = tensor(rng.standard_normal((6, 3)), dtype=kind)
                real = tensor(rng.standard_normal((6, 4)), dtype=kind)
                fake = model.critic(model(noise)).mean()
                loss = fake - model.critic(real).tanh().mean() if name == "critic" else -fake
                record(f"loss.{name}", loss)
                loss.backward()
                optimizer.step()
                for one in made.values():
                    one.zero_grad() if framework == "torch" else one.clear_grad()
        return {}


def _networks(nn: Any, base: type) -> Any:
    class Networks(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.generator = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
            self.critic = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))

        def forward(self, x: Any) -> Any:
            return self.generator(x)

    return Networks()
