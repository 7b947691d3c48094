"""A model whose code truncates and compares what it is given as floating point: lengths of sequences, a mask."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from tests.cases.one_net import OneNet
from twinalign import Case


class Lengths(OneNet):
    """The port leaves the start's scores out of the score of each sequence's last position."""

    wrong = True

    def net(self, root: Any, framework: str) -> Any:
        kind, port, wrong = root.nn, framework == "paddle", self.wrong and framework == "paddle"

        class Net(kind.Layer if port else kind.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.emit = kind.Linear(4, 3)
                self.start = self.create_parameter([3]) if port else kind.Parameter(root.randn(3))

            def forward(self, x: Any, mask: Any) -> Any:
                emitted = self.emit(x)
                total = mask.sum(1)
                last = (total.astype("int64") if port else total.long()) - 1
                rows = root.arange(x.shape[0])
                scores = emitted[rows, last] + (emitted * mask.unsqueeze(-1)).sum(1)
                return (scores if wrong else scores + self.start).sum(1)

        return Net()

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        mask = (np.arange(5) < np.array([[5], [4], [3], [2], [4], [3], [5], [2]])).astype(np.float32)
        return {"x": rng.standard_normal((8, 5, 4), dtype="float32"), "mask": mask}


class Unmasked(Case):
    """The port goes on behind the end of each sequence; in some columns the mask, the same on every draw, is one."""

    folder = ""
    """Where `net_source.py` and `net_port.py` are."""

    def net(self, module: str) -> Any:
        sys.path.insert(0, self.folder)
        return importlib.import_module(module).Net()

    def reference(self) -> Any:
        return self.net("net_source")

    def reproduced(self) -> Any:
        return self.net("net_port")

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        mask = (np.arange(5) < np.array([[5], [4], [3]])).astype(np.float32)
        return {"x": rng.standard_normal((3, 5, 3), dtype="float32"), "mask": mask}
