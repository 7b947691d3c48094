"""Whether a model computes in float32 within its float64 run, as with `x.to(torch.float32)` in a normalisation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class CastCount(TorchFunctionMode):
    """Counts calls inside the block that are given float64 tensors, and asked for float32.

    Attributes:
        count: how many.
    """

    def __init__(self) -> None:
        """Nothing is counted yet."""
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call as it is."""
        kwargs = kwargs or {}
        asked = func is torch.Tensor.float or any(value is torch.float32 for value in (*args, *kwargs.values()))
        if asked and _has_float64(args):
            self.count += 1
        return func(*args, **kwargs)


def _has_float64(values: Iterable[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.dtype == torch.float64 for value in values)
