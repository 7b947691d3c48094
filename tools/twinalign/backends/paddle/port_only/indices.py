"""Indices that reach beyond a tensor, which paddle's kernels read without a look: it may end the process."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle

from twinalign.patching import replaced


@contextlib.contextmanager
def checked_indices() -> Iterator[None]:
    """Inside the block items of a tensor that it has not raise IndexError, as in torch."""
    get, put = paddle.Tensor.__getitem__, paddle.Tensor.__setitem__

    def getting(tensor: Any, item: Any) -> Any:
        _check(tensor.shape, item)
        return get(tensor, item)

    def setting(tensor: Any, item: Any, value: Any) -> Any:
        _check(tensor.shape, item)
        return put(tensor, item, value)

    with replaced(paddle.Tensor, "__getitem__", getting), replaced(paddle.Tensor, "__setitem__", setting):
        yield


def _check(shape: list[int], item: Any) -> None:
    items = item if isinstance(item, tuple) else (item,)
    axis = 0
    for at, one in enumerate(items):
        if one is Ellipsis:
            axis = len(shape) - sum(map(_axes, items[at + 1 :]))
        elif isinstance(one, (paddle.Tensor, np.ndarray)):
            array = np.asarray(one)
            if array.dtype.kind in "iu" and array.size and axis < len(shape):
                least, most = int(array.min()), int(array.max())
                if least < -shape[axis] or most >= shape[axis]:
                    raise IndexError(f"places from {least} to {most} along an axis of {shape[axis]}")
            axis += _axes(one)
        else:
            axis += _axes(one)


def _axes(item: Any) -> int:
    """How many axes of a tensor an item of an index takes."""
    if item is None:
        return 0
    is_mask = isinstance(item, (paddle.Tensor, np.ndarray)) and np.asarray(item).dtype.kind == "b"
    return int(item.ndim) if is_mask else 1
