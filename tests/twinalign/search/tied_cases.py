"""Weights that one side alone shares: the reference or the port, a layer or a weight, with another fault or not."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Shared(OneNet):
    """`shared`: the framework in which the two layers are one."""

    shared = "torch"

    def net(self, root: Any, framework: str) -> Any:
        kind, shared = root.nn, self.shared == framework

        class Net(kind.Layer if framework == "paddle" else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first = kind.Linear(6, 6)
                self.second = self.first if shared else kind.Linear(6, 6)
                if framework == "torch" and not shared:
                    self.second.load_state_dict(self.first.state_dict())

            def forward(self, x: Any) -> Any:
                return self.second(root.tanh(self.first(x)))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 6), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs**2).mean()

    def optimizer(self, parameters: Any, framework: str) -> Any:
        if framework == "torch":
            from torch.optim import SGD

            return SGD(parameters, lr=0.1)
        import paddle

        return paddle.optimizer.SGD(0.1, parameters)


class SharedInPort(Shared):
    shared = "paddle"


class SharedInBoth(Shared):
    """Both share the layer, so that nothing is wrong."""

    def net(self, root: Any, framework: str) -> Any:
        model = super().net(root, framework)
        model.second = model.first
        return model


class Head(Shared):
    """The embedding's weight is that of the head in the reference alone."""

    wrong = False
    """Whether the port has another activation, too."""
    frozen = False

    def net(self, root: Any, framework: str) -> Any:
        kind, port = root.nn, framework == "paddle"
        activation = kind.functional.sigmoid if port and self.wrong else root.tanh

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.words = kind.Embedding(7, 4)
                self.inner = kind.Linear(4, 4)
                self.head = kind.Linear(4, 7, **{"bias_attr" if port else "bias": False})
                if not port:
                    self.head.weight = self.words.weight

            def forward(self, x: Any) -> Any:
                return self.head(activation(self.inner(self.words(x))))

        model = Net()
        for layer in (model.words, model.head) if self.frozen else ():
            if port:
                layer.weight.stop_gradient = True
            else:
                layer.weight.requires_grad = False
        return model

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.integers(0, 7, (4, 5))}


class HeadAndActivation(Head):
    wrong = True


class FrozenHead(Head):
    """What is not trained may be one tensor or two."""

    frozen = True


class Nested(Shared):
    """A block is used twice in the reference; the port builds it twice, with a norm that both share on both sides."""

    def net(self, root: Any, framework: str) -> Any:
        kind, port = root.nn, framework == "paddle"
        base = kind.Layer if port else kind.Module

        class Block(base):  # type: ignore[misc, valid-type]
            def __init__(self, norm: Any) -> None:
                super().__init__()
                self.inner, self.norm = kind.Linear(6, 6), norm

            def forward(self, x: Any) -> Any:
                return root.tanh(self.norm(self.inner(x)))

        class Net(base):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                super().__init__()
                norm = kind.LayerNorm(6)
                self.first = Block(norm)
                self.second = Block(norm) if port else self.first

            def forward(self, x: Any) -> Any:
                return self.second(self.first(x))

        return Net()
