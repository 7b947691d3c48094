"""Parameters that begin with zeros, and ports that leave out what is done with them: no output shows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Zeros(OneNet):
    """The port is right."""

    wrong = ""

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((6, 4), dtype="float32")}

    def net(self, root: Any, framework: str) -> Any:
        kind, port = root.nn, framework == "paddle"
        wrong = self.wrong if port else ""

        def zeros(layer: Any, *shape: int) -> Any:
            if not port:
                return kind.Parameter(root.zeros(*shape))
            return layer.create_parameter(list(shape), default_initializer=kind.initializer.Constant(0.0))

        class Part(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.shift, self.gate, self.inner = zeros(self, 4), zeros(self, 4), kind.Linear(4, 4)
                if wrong == "frozen":
                    self.shift.stop_gradient = True

            def stopped(self) -> Any:
                return self.shift.detach()

            def forward(self, x: Any) -> Any:
                shifted = root.tanh(
                    x + self.stopped() if wrong == "stopped" else x if wrong == "shift" else x + self.shift
                )
                branch = root.tanh(self.inner(shifted))
                return shifted if wrong == "branch" else shifted + self.gate * branch

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.part, self.head = kind.Linear(4, 4), Part(), kind.Linear(4, 2)

            def forward(self, x: Any) -> Any:
                return self.head(self.part(self.enter(x)))

        return Net()


class Shift(Zeros):
    wrong = "shift"


class Branch(Zeros):
    wrong = "branch"


class Stopped(Zeros):
    wrong = "stopped"


class Frozen(Zeros):
    wrong = "frozen"
