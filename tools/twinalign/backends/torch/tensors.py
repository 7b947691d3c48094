"""Tensors of torch: to and from numpy, in place, in the graph."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from twinalign.backends.protocol import CHECKED_ELEMENTS, checksum_of
from twinalign.backends.torch.process import device_of


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def to_tensor(array: np.ndarray, dtype: str, device: str) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(array, order="C")).to(device_of(device))
    return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor


def to_tensor_like(array: np.ndarray, tensor: torch.Tensor) -> torch.Tensor:
    return to_tensor(array, str(tensor.dtype).removeprefix("torch."), "gpu" if tensor.is_cuda else "cpu")


def to_array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    if tensor.layout is not torch.strided:  # gradients of an embedding may be sparse
        tensor = tensor.to_dense()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return np.array(tensor.resolve_conj().resolve_neg().numpy())  # torch may have noted a conjugate without making it


def values_of(tensor: torch.Tensor) -> np.ndarray:
    noted = tensor.is_conj() or tensor.is_neg()
    if tensor.layout is not torch.strided or tensor.dtype == torch.bfloat16 or noted:
        return to_array(tensor)
    found: np.ndarray = tensor.detach().cpu().numpy()
    return found


def version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def checksum(tensor: torch.Tensor) -> float:
    with torch._C.DisableTorchFunction():  # what watches the calls of a model would make each of these dear
        checked = tensor.detach().flatten()[:: max(1, tensor.numel() // CHECKED_ELEMENTS)]
        is_plain = checked.device.type == "cpu" and checked.dtype in (torch.float32, torch.float64)
        return checksum_of((checked.resolve_neg() if is_plain else checked.double().cpu()).numpy())


def assign(tensor: torch.Tensor, array: np.ndarray) -> None:
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(np.array(array)))


def resize(tensor: torch.Tensor, shape: Sequence[int]) -> None:
    with torch.no_grad():
        tensor.resize_(tuple(shape))


def differentiable(tensor: torch.Tensor) -> bool:
    return bool(tensor.requires_grad)


def detached(tensor: torch.Tensor, differentiable: bool) -> torch.Tensor:
    return tensor.detach().requires_grad_(differentiable)


def no_grad() -> AbstractContextManager[None]:
    return torch.no_grad()


def gradients(
    outputs: list[torch.Tensor], inputs: list[torch.Tensor], seeds: list[torch.Tensor], again: bool = False
) -> list[torch.Tensor | None]:
    found = torch.autograd.grad(outputs, inputs, seeds, retain_graph=again, allow_unused=True)
    return list(found)
