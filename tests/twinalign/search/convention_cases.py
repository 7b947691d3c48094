"""A model that hands its blocks a table of positions, from which they take the distances between two places."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Backwards(OneNet):
    """The port counts the distances from the other end, in its table and where it takes them.

    Attributes:
        squares: whether the port's last layer squares what it takes, and is wrong.
        takes_as_reference: whether its blocks take the distances as the reference's do, so that its table is wrong.
    """

    squares = True
    takes_as_reference = False

    def net(self, root: Any, framework: str) -> Any:
        kind, port = root.nn, framework == "paddle"
        squares, alike = port and self.squares, not port or self.takes_as_reference

        class Mixing(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.position = kind.Linear(6, 4)

            def forward(self, x: Any, table: Any) -> Any:
                places = root.arange(5)
                apart = places[:, None] - places[None]
                distances = self.position(table)[(apart if alike else -apart) + 4]
                return x + root.einsum("bic,ijc->bjc", x, distances.tanh())

        class Last(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner = kind.Linear(4, 4)

            def forward(self, x: Any) -> Any:
                return self.inner(x * x if squares else x)

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second, self.last = Mixing(), Mixing(), Last()

            def forward(self, x: Any) -> Any:
                distances = root.arange(-4, 5, dtype=x.dtype)
                rates = 0.3 ** root.arange(6, dtype=x.dtype)
                table = ((-distances if port else distances)[:, None] * rates[None] + 0.1).sin()
                return self.last(self.second(self.first(x, table), table))

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 5, 4), dtype="float32")}


class BackwardsInTableAlone(Backwards):
    """The blocks take the table as the reference's do."""

    squares = False
    takes_as_reference = True
