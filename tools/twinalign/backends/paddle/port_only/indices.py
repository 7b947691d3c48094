"""Indices and lengths that reach beyond a tensor, and arrays in place of numbers, which paddle reads unchecked.

That may end the process, at once or later, or let it run for ever.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle

from twinalign.patching import replaced


@contextlib.contextmanager
def checked_indices() -> Iterator[None]:
    """Inside the block items that a tensor has not raise IndexError, as in torch, and so do lengths of sequences."""
    get, put = paddle.Tensor.__getitem__, paddle.Tensor.__setitem__

    def getting(tensor: Any, item: Any) -> Any:
        _check(tensor.shape, item)
        return get(tensor, item)

    def setting(tensor: Any, item: Any, value: Any) -> Any:
        _check(tensor.shape, item)
        return put(tensor, item, value)

    recurrent, temporal, full = paddle._C_ops.rnn, paddle._C_ops.warpctc, paddle._C_ops.full
    embedded = paddle._C_ops.embedding

    def running(values: Any, states: Any, weights: Any, lengths: Any, *more: Any) -> Any:
        if lengths is not None:
            _check_lengths(lengths, 0, values.shape[0])
        return recurrent(values, states, weights, lengths, *more)

    def aligning(scores: Any, labels: Any, lengths: Any, label_lengths: Any, *more: Any) -> Any:
        if lengths is not None and label_lengths is not None:
            _check_lengths(lengths, 0, scores.shape[0])
            _check_lengths(label_lengths, 0, labels.shape[-1])
            _check_lengths(labels, 0, scores.shape[-1] - 1)
        return temporal(scores, labels, lengths, label_lengths, *more)

    def filling(shape: Any, value: Any, *more: Any, **named: Any) -> Any:
        number = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
        return full(shape, number, *more, **named)

    def embedding(numbers: Any, weight: Any, *more: Any, **named: Any) -> Any:
        _check_lengths(numbers, 0, weight.shape[0] - 1)
        return embedded(numbers, weight, *more, **named)

    def drawing(draw: Any, shape: Any, first: Any, second: Any, *more: Any, **named: Any) -> Any:
        if not all(isinstance(one, (int, float)) for one in (first, second)):
            raise TypeError(f"numbers are drawn between or around numbers, not {type(first)} and {type(second)}")
        return draw(shape, first, second, *more, **named)

    with (
        replaced(paddle.Tensor, "__getitem__", getting),
        replaced(paddle.Tensor, "__setitem__", setting),
        replaced(paddle._C_ops, "rnn", running),
        replaced(paddle._C_ops, "warpctc", aligning),
        replaced(paddle._C_ops, "full", filling),
        replaced(paddle._C_ops, "embedding", embedding),
        replaced(paddle._C_ops, "gaussian", functools.partial(drawing, paddle._C_ops.gaussian)),
    ):
        yield


def _check_lengths(numbers: Any, least: int, most: int) -> None:
    array = np.asarray(numbers)
    if array.size and (array.min() < least or array.max() > most):
        raise IndexError(f"numbers from {array.min()} to {array.max()} where {least} to {most} are possible")


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
