"""A model whose layers return their edges beside their nodes, as the last one's are used by nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Passing(OneNet):
    """The port's layers update their edges always, the reference's last one does not; the port's end squares.

    Attributes:
        uses_edges: whether the model returns what the last layer makes of its edges.
    """

    uses_edges = False

    def net(self, root: Any, framework: str) -> Any:
        kind, port, uses_edges = root.nn, framework == "paddle", self.uses_edges

        class Message(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self, updates: bool) -> None:
                super().__init__()
                self.inner, self.updates = kind.Linear(4, 4), updates

            def forward(self, nodes: Any, edges: Any) -> Any:
                message = self.inner(edges)
                return nodes + message.tanh(), edges + message if self.updates else message

        class End(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner = kind.Linear(4, 4)

            def forward(self, x: Any) -> Any:
                return self.inner(x * x if port else x)

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.last, self.end = Message(True), Message(port), End()

            def forward(self, nodes: Any, edges: Any) -> Any:
                nodes, edges = self.last(*self.first(nodes, edges))
                return self.end(nodes + edges if uses_edges else nodes)

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: rng.standard_normal((3, 4), dtype="float32") for name in ("nodes", "edges")}


class PassingOn(Passing):
    """The model uses these edges."""

    uses_edges = True
