"""A model whose port fills the dictionary of its results in another order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class OtherOrder(OneNet):
    """Both results have one shape; the loss takes them by name."""

    wrong_layer, wrong_loss = False, False

    def net(self, root: Any, framework: str) -> Any:
        kind, port, wrong = root.nn, framework == "paddle", self.wrong_layer

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = kind.Linear(4, 4), kind.Linear(4, 4)

            def forward(self, x: Any) -> dict[str, Any]:
                if port:
                    second = self.second(x)
                    return {"second": second * 2 if wrong else second, "first": self.first(x)}
                return {"first": self.first(x), "second": self.second(x)}

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 4), dtype="float32")}

    def loss(self, outputs: Mapping[str, Any], inputs: Mapping[str, Any], framework: str) -> Any:
        factor = 3 if self.wrong_loss and framework == "paddle" else 1
        return {"loss": (outputs["first"] ** 2).mean() + factor * outputs["second"].mean()}


class OtherOrderWrongLayer(OtherOrder):
    wrong_layer = True


class OtherOrderWrongLoss(OtherOrder):
    wrong_loss = True
