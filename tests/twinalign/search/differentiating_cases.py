"""A model whose forward pass differentiates one of its layers, as for a gradient penalty."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Penalty(OneNet):
    """The port's penalty is that of gradients of length one, the reference's that of none."""

    wrong = "penalty"
    opened = False
    """Whether the port has the layer's own layers in their places."""

    def net(self, root: Any, framework: str) -> Any:
        kind, port = root.nn, framework == "paddle"
        opened = self.opened and port
        wrong = self.wrong if port else ""
        differentiate = root.grad if port else root.autograd.grad

        class Critic(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.last = kind.Linear(4, 5), kind.Linear(5, 1)

            def forward(self, x: Any) -> Any:
                y = root.tanh(self.first(x))
                return self.last(2 * y if wrong == "critic" else y)

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter = kind.Linear(4, 4)
                if opened:
                    self.first, self.last = kind.Linear(4, 5), kind.Linear(5, 1)
                    self.critic = lambda x: self.last(root.tanh(self.first(x)))
                else:
                    self.critic = Critic()

            def forward(self, x: Any) -> Any:
                fake, real = self.enter(x), x.detach()
                if port:
                    real.stop_gradient = False
                else:
                    real.requires_grad_(True)
                with root.enable_grad():
                    scores = self.critic(real)
                    (gradient,) = differentiate(scores.sum(), real, create_graph=True)
                    squares = (gradient * gradient).sum(1)
                    penalty = ((squares.sqrt() - 1) ** 2 if wrong == "penalty" else squares).mean()
                return {"fake": self.critic(fake), "real": scores, "penalty": penalty}

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 4), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return outputs["fake"].mean() - outputs["real"].mean() + outputs["penalty"]


class Opened(Penalty):
    """The reference alone has a layer around those that are differentiated through."""

    opened = True


class WrongCritic(Penalty):
    """The layer that is differentiated is wrong."""

    wrong = "critic"


class Right(Penalty):
    """Nothing is wrong."""

    wrong = ""
