"""Layers whose results depend on what ran before them; in the port of the wrong ones a factor is another."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinalign import Case


class Counted(Case):
    """The first layer's result depends on how often it has run."""

    name = "repeating"
    factor = 2.0

    def reference(self) -> Any:
        import torch

        return self.model(torch, torch.nn.Module, 2.0)

    def reproduced(self) -> Any:
        import paddle

        return self.model(paddle, paddle.nn.Layer, self.factor)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((4, 6), dtype="float32")}

    def model(self, framework: Any, base: Any, factor: float) -> Any:
        make = self.first

        class Model(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.last = make(framework, base, factor), framework.nn.Linear(6, 3)

            def forward(self, x: Any) -> Any:
                return self.last(self.first(x))

        return Model()

    @staticmethod
    def first(framework: Any, base: Any, factor: float) -> Any:
        class First(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.calls, self.inside = 0, framework.nn.Linear(6, 6)

            def forward(self, x: Any) -> Any:
                self.calls += 1
                return framework.tanh(self.inside(x)) * factor * self.calls

        return First()


class CountedWrong(Counted):
    factor = 3.0


class Drawn(Counted):
    """A generator of its own, which no framework knows."""

    @staticmethod
    def first(framework: Any, base: Any, factor: float) -> Any:
        class First(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.own, self.inside = np.random.default_rng(0), framework.nn.Linear(6, 6)

            def forward(self, x: Any) -> Any:
                drawn = framework.to_tensor if hasattr(framework, "to_tensor") else framework.tensor
                return framework.tanh(self.inside(x)) * factor + drawn(self.own.standard_normal(6)).to(x.dtype)

        return First()


class DrawnWrong(Drawn):
    factor = 3.0


class Cache:
    """Keys and values of earlier calls, which a layer is given and adds its own to."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def with_these(self, framework: Any, *tensors: Any) -> Any:
        self.held.append(tensors)
        join = framework.concat if hasattr(framework, "concat") else framework.cat
        return [join(parts, 1) for parts in zip(*self.held, strict=True)]


class Cached(Case):
    """Attention that keeps keys and values in an object, which the port does without."""

    name = "cached"
    stopped, factor = False, 0.5

    def reference(self) -> Any:
        import torch

        return _attention(torch, torch.nn.Module, Cache, False, 0.5)

    def reproduced(self) -> Any:
        import paddle

        return _attention(paddle, paddle.nn.Layer, lambda: None, self.stopped, self.factor)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 5, 6), dtype="float32")}

    def loss(self, outputs: Any, inputs: Any, framework: str) -> Any:
        return (outputs**2).mean()


def _attention(framework: Any, base: Any, cache: Any, stopped: bool, factor: float) -> Any:
    class Attention(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (framework.nn.Linear(6, 6) for _ in range(3))

        def forward(self, x: Any, cache: Any = None) -> Any:
            q, k, v = self.q(x), self.k(x), self.v(x)
            if cache is not None:
                k, v = cache.with_these(framework, k, v)
            k = k.detach() if stopped else k
            scores = framework.matmul(q * factor, k.mT)
            return framework.matmul(framework.nn.functional.softmax(scores, -1), v)

    class Model(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.last = Attention(), framework.nn.Linear(6, 3)

        def forward(self, x: Any) -> Any:
            return self.last(self.one(x, cache=cache()))

    return Model()


class CachedStopped(Cached):
    stopped = True


class CachedWrong(Cached):
    factor = 0.25
