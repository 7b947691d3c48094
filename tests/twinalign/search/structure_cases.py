"""Ports of another structure than the reference's, right but for one line elsewhere in the same code."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class EncodedOutside(OneNet):
    """The reference's head encodes what it is given, the port's code around it does; what comes before is wrong."""

    def net(self, root: Any, framework: str) -> Any:
        kind, port = root.nn, framework == "paddle"

        def encoded(x: Any) -> Any:
            parts = [x, (2 * x).sin(), (2 * x).cos()]
            return root.concat(parts, -1) if port else root.cat(parts, -1)

        class Head(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner = kind.Linear(12, 2)

            def forward(self, x: Any) -> Any:
                made = self.inner(x if port else encoded(x))
                return made if port else made.exp()

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.head, self.last = kind.Linear(4, 4), Head(), kind.Linear(2, 2)

            def forward(self, x: Any) -> Any:
                middle = self.first(x)
                if port:
                    middle = middle.tanh() * 0.5
                    return self.last(self.head(encoded(middle)).exp())
                middle = middle.tanh() * 0.25
                return self.last(self.head(middle))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 4), dtype="float32")}


class OuterLoop(OneNet):
    """The port's core runs through all steps, the reference's cell makes one; the port's loop forgets to reset `c`."""

    def net(self, root: Any, framework: str) -> Any:
        kind, port = root.nn, framework == "paddle"

        class Core(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.cell = kind.LSTMCell(4, 3)

            def forward(self, x: Any, begins: Any, h: Any, c: Any) -> Any:
                found = []
                for t in range(x.shape[0]):
                    keep = (1.0 - begins[t]).unsqueeze(-1)
                    _, (h, c) = self.cell(x[t], (h * keep, c))
                    found.append(h)
                return root.stack(found), h, c

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first = kind.Linear(4, 4)
                self.core = Core() if port else kind.LSTMCell(4, 3)
                self.last = kind.Linear(3, 2)

            def forward(self, x: Any, begins: Any, h: Any, c: Any) -> Any:
                x = self.first(x)
                if port:
                    return self.last(self.core(x, begins, h, c)[0])
                found = []
                for t in range(x.shape[0]):
                    keep = (1.0 - begins[t]).unsqueeze(-1)
                    h, c = self.core(x[t], (h * keep, c * keep))
                    found.append(h)
                return self.last(root.stack(found))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "x": rng.standard_normal((5, 2, 4), dtype="float32"),
            "begins": np.array([[0, 0], [0, 1], [1, 0], [0, 0], [0, 1]], dtype="float32"),
            "h": rng.standard_normal((2, 3), dtype="float32"),
            "c": rng.standard_normal((2, 3), dtype="float32"),
        }
