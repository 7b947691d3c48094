"""Tensors of paddle: to and from numpy, in place, in the graph."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from twinalign.backends.paddle.port_only.leaf_hooks import hooked
from twinalign.backends.protocol import CHECKED_ELEMENTS, checksum_of

_NOT_SHARED = [getattr(paddle, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2") if hasattr(paddle, name)]
"""What numpy cannot be given without a copy."""


def is_tensor(value: Any) -> bool:
    return isinstance(value, paddle.Tensor)


def tensors_in(value: Any) -> list[paddle.Tensor]:
    if isinstance(value, paddle.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def to_tensor(array: np.ndarray, dtype: str, device: str) -> paddle.Tensor:
    if np.issubdtype(array.dtype, np.floating):
        if dtype == "bfloat16":  # numpy has no such type
            return paddle.to_tensor(np.asarray(array, dtype="float32", order="C")).astype(dtype)
        array = array.astype(dtype, copy=False)
    return paddle.to_tensor(np.asarray(array, order="C"))


def to_tensor_like(array: np.ndarray, tensor: paddle.Tensor) -> paddle.Tensor:
    return to_tensor(array, str(tensor.dtype).rpartition(".")[2], "cpu" if tensor.place.is_cpu_place() else "gpu")


def to_array(tensor: paddle.Tensor) -> np.ndarray:
    if tensor.is_selected_rows():
        return _dense_rows(tensor)
    tensor = tensor.detach()
    if tensor.dtype == paddle.bfloat16:
        tensor = tensor.astype("float32")
    return np.asarray(tensor.numpy())  # paddle makes a copy of its own


def _dense_rows(tensor: paddle.Tensor) -> np.ndarray:
    """Of a sparse embedding's gradient, whose shape is that of its rows alone."""
    rows = to_array(paddle.nn.clip.get_tensor_from_selected_rows(tensor))
    found = np.zeros((tensor.get_selected_rows().height(), *rows.shape[1:]), rows.dtype)
    np.add.at(found, tensor.rows(), rows)
    return found


def values_of(tensor: paddle.Tensor) -> np.ndarray:
    # Without a copy where that can be had: not of sparse rows, from a GPU, or a paddle before 3.0.
    is_plain = not tensor.is_selected_rows() and tensor.dtype not in _NOT_SHARED
    if is_plain and tensor.place.is_cpu_place() and hasattr(tensor, "__dlpack__"):
        return np.from_dlpack(tensor.detach())
    return to_array(tensor)


def version(tensor: paddle.Tensor) -> int:
    return int(tensor.inplace_version)


def checksum(tensor: paddle.Tensor) -> float:
    flat = tensor.detach().flatten()
    return checksum_of(flat[:: max(1, flat.shape[0] // CHECKED_ELEMENTS)].numpy())


def assign(tensor: paddle.Tensor, array: np.ndarray) -> None:
    with paddle.no_grad():
        tensor.set_value(paddle.to_tensor(np.array(array, order="C"), place=tensor.place).astype(tensor.dtype))


def resize(tensor: paddle.Tensor, shape: Sequence[int]) -> None:
    with paddle.no_grad():
        paddle.assign(paddle.zeros(list(shape), dtype=tensor.dtype), output=tensor)


def differentiable(tensor: paddle.Tensor) -> bool:
    return not tensor.stop_gradient


def detached(tensor: paddle.Tensor, differentiable: bool) -> paddle.Tensor:
    found = tensor.detach()
    found.stop_gradient = not differentiable
    return found


def no_grad() -> AbstractContextManager[None]:
    return paddle.no_grad()


def gradients(
    outputs: list[paddle.Tensor], inputs: list[paddle.Tensor], seeds: list[paddle.Tensor], again: bool = False
) -> list[paddle.Tensor | None]:
    ends: dict[str, list[paddle.Tensor]] = {}
    for output, seed in zip(outputs, seeds, strict=True):  # paddle refuses an end that is given twice, torch adds up
        ends[output.name] = [output, ends[output.name][1] + seed if output.name in ends else seed]
    tensors, gradients = ([end[at] for end in ends.values()] for at in (0, 1))
    found = paddle.grad(tensors, inputs, gradients, retain_graph=again, allow_unused=True)
    return [hooked(one, gradient) for one, gradient in zip(inputs, found, strict=True)]
