"""A model that calls a layer twice on the same values, of which the other side calls it once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Once(OneNet):
    """The reference looks an id up and projects it for each use, the port once for both.

    Attributes:
        twice_in: the framework in which the layers are called twice.
        is_wrong: whether the port's end squares what it is given.
        stops: whether the port stops the gradient of a further use.
    """

    twice_in = "torch"
    is_wrong = stops = False

    def net(self, root: Any, framework: str) -> Any:
        kind, twice = root.nn, framework == self.twice_in
        squares, stops = (one and framework == "paddle" for one in (self.is_wrong, self.stops))

        class Net(kind.Layer if framework == "paddle" else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.user, self.inner, self.end = kind.Embedding(6, 4), kind.Linear(4, 4), kind.Linear(4, 2)

            def forward(self, numbers: Any, x: Any) -> Any:
                found, wide = self.user(numbers), x.tanh()
                made = self.inner(wide)
                again = [self.user(numbers), self.inner(wide)] if twice else [found, made]
                again = [one.detach() if stops else one for one in again]
                norm = (again[0] ** 2).sum(-1).mean() + again[1].sin().mean()
                total = found * made
                return self.end(total * total if squares else total), norm

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"numbers": np.array([1, 4, 2]), "x": rng.standard_normal((3, 4), dtype="float32")}


class OnceInReference(Once):
    twice_in = "paddle"


class OnceInWrong(Once):
    is_wrong = True


class OnceInReferenceOfWrong(Once):
    is_wrong, twice_in = True, "paddle"


class OnceStopped(Once):
    stops = True


class OnceInReferenceStopped(Once):
    stops, twice_in = True, "paddle"


class TakenOnce(OneNet):
    """Attention that takes a tensor twice in the reference, and once in the port."""

    def net(self, root: Any, framework: str) -> Any:
        kind, port = root.nn, framework == "paddle"

        class Attention(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.key, self.value = kind.Linear(4, 4), kind.Linear(4, 4)

            def forward(self, x: Any, given: Any = None) -> Any:
                given = x if given is None else given
                return x + (self.key(given) * x).tanh() * self.value(given)

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.norm, self.inner = kind.LayerNorm(4), Attention()

            def forward(self, x: Any) -> Any:
                x = self.norm(x)
                return self.inner(x) if port else self.inner(x, x)

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((3, 4), dtype="float32")}
