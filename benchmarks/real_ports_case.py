"""A pair of real_ports_pairs.py as a case, as a user would write it: two constructors, inputs, a loss, an optimizer.

twinalign run benchmarks/real_ports_case.py --set pair=NAME
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import real_ports_pairs

from twinalign import Case


class RealPort(Case):
    """The pair that the option `pair` names."""

    pair = ""

    def __getattribute__(self, name: str) -> Any:
        """An attribute that the pair sets for its user, such as `rename`, in place of the default."""
        if name in ("rename", "accept", "allowances", "train_mode", "rules"):
            return self.chosen.lines.get(name, object.__getattribute__(self, name))
        return object.__getattribute__(self, name)

    @property
    def chosen(self) -> real_ports_pairs.Pair:
        """The pair."""
        return real_ports_pairs.every_pair()[self.pair]

    def reference(self) -> Any:
        """The torch model; the zeros and ones of its initial weights are changed as if it had been trained."""
        model = real_ports_pairs.build(self.chosen.reference)
        real_ports_pairs.as_if_trained(model)
        return model

    def reproduced(self) -> Any:
        """The port as it is."""
        return real_ports_pairs.build(self.chosen.port)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Noise, or random tokens."""
        return {name: draw(rng) for name, draw in self.chosen.inputs.items()}

    def forward(self, model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """As twinalign calls it, unless the pair says otherwise."""
        own = self.chosen.lines.get("forward")
        return own(model, inputs, framework) if own else super().forward(model, inputs, framework)

    def loss(self, outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """Mean squared distance of the outputs from noise."""
        return real_ports_pairs.loss(outputs, framework)

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        """SGD with momentum 0.9, or AdamW, and weight decay."""
        if framework == "torch":
            import torch

            if self.chosen.algorithm == "AdamW":
                return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05)
            return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)
        import paddle

        if self.chosen.algorithm == "AdamW":
            return paddle.optimizer.AdamW(1e-3, parameters=parameters, weight_decay=0.05)
        return paddle.optimizer.Momentum(0.01, 0.9, parameters, weight_decay=1e-4)
