"""Functions of paddle that go by the order of values, in torch."""

from collections.abc import Callable
from typing import Any

import torch


def ordered(name: str) -> Callable[..., Any]:
    """`sort` or `argsort`, which return one tensor each."""

    def found(x: Any, axis: int = -1, descending: bool = False, stable: bool = False) -> Any:
        values, places = torch.sort(x, axis, descending)
        return values if name == "sort" else places

    return found


def median(x: Any, axis: Any = None, keepdim: bool = False, mode: str = "avg") -> Any:
    """paddle's median; the lower of two values with their indices alone if it is asked for and given an axis."""
    if mode == "avg":
        return _middle(x, axis, keepdim)
    found = torch.median(x.reshape(-1), 0) if axis is None else torch.median(x, axis, keepdim)
    values = found.values.reshape([1] * x.dim()) if axis is None and keepdim else found.values
    return values if axis is None else (values, found.indices)


def _middle(x: Any, axis: Any, keepdim: bool) -> Any:
    """The mean of the two in the middle, by the sorted values: torch's quantile takes no large tensors."""
    flat, size = (x.reshape(-1), x.numel()) if axis is None else (x, x.shape[axis])
    values, dim = flat.sort(-1 if axis is None else axis).values, -1 if axis is None else axis
    found = (values.select(dim, (size - 1) // 2) + values.select(dim, size // 2)) / 2
    shape = [1] * x.dim() if axis is None else [1 if at == axis % x.dim() else n for at, n in enumerate(x.shape)]
    return found.reshape(shape) if keepdim else found
