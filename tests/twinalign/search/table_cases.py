"""A table of positions that the port computes in its constructor in another order, which float32 rounds otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.one_net import OneNet


class Rounded(OneNet):
    """Both keep in a buffer what no state holds, and nothing but rounding differs."""

    shift = 0.0

    def net(self, root: Any, framework: str) -> Any:
        kind, port, shift = root.nn, framework == "paddle", self.shift

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.enter, self.leave = kind.Linear(8, 8), kind.Linear(8, 8)
                at = root.arange(5, dtype=root.get_default_dtype())[:, None]
                places = root.arange(8, dtype=root.get_default_dtype()) / 8
                if port:
                    self.register_buffer("table", root.sin(at * 10.0**-places + shift), persistable=False)
                else:
                    self.register_buffer("table", root.sin(at / root.pow(root.tensor(10.0), places)), persistent=False)

            def forward(self, x: Any) -> Any:
                return self.leave(self.enter(x) + self.table)

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((2, 5, 8), dtype="float32")}


class Shifted(Rounded):
    """The port's table is off by as little as rounding."""

    shift = 3e-7
