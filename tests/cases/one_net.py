"""A case whose two models are one piece of code, which is given the framework."""

from __future__ import annotations

from typing import Any

from twinalign import Case


class OneNet(Case):
    """`net` makes the model of either side."""

    def net(self, root: Any, framework: str) -> Any:
        raise NotImplementedError

    def reference(self) -> Any:
        import torch

        return self.net(torch, "torch")

    def reproduced(self) -> Any:
        import paddle

        return self.net(paddle, "paddle")
