"""Tensors of the reference as graph nodes (one node per use, gradients, memory), and float32 within its float64 run."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from twinalign.backends.torch.reference_only.signatures import ARGUMENTS


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as a separate graph node, so that the gradient of one use is known."""
    return tensor.view_as(tensor)


def below(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor that an alias of all of it is an alias of; the tensor itself if it is none."""
    base = None if tensor is None else tensor._base
    return base if base is not None and tensor is not None and storage_key(base) == storage_key(tensor) else tensor


def of_its_own(tensor: torch.Tensor, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """A copy of a result that is a view of what was made for it, as an instance norm's is; any other tensor itself.

    Where a view is changed in place, autograd makes its history anew, and hooks no longer see its own gradient.
    """
    is_inner = tensor._is_view() and all(tensor.data_ptr() != one.data_ptr() for one in given)
    return tensor.clone() if is_inner else tensor


def records_gradients() -> bool:
    """Whether code that runs now is differentiable: not inside of `no_grad`."""
    return torch.is_grad_enabled()


def on_gradient(tensor: torch.Tensor, receive: Callable[[torch.Tensor], None]) -> None:
    """Hand the gradient of a differentiable tensor to `receive` during the backward pass."""
    tensor.register_hook(receive)


def address(tensor: torch.Tensor) -> int:
    """Where a tensor's values begin, which its aliases share."""
    return tensor.data_ptr()


def storage_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for two tensors that view the same memory in the same way."""
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


_uncounted = contextvars.ContextVar("uncounted", default=False)


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Inside the block `CastCount` counts nothing: a model that is built may round its constants."""
    token = _uncounted.set(True)
    try:
        yield
    finally:
        _uncounted.reset(token)


class CastCount(TorchFunctionMode):
    """Counts calls inside the block that are given float64 tensors, and asked for float32.

    So is `x.to(torch.float32)` in a normalisation, by which a float64 run computes in float32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        asked = func is torch.Tensor.float or any(value is torch.float32 for value in (*args, *kwargs.values()))
        asked = asked and not _uncounted.get()
        if asked and any(isinstance(value, torch.Tensor) and value.dtype == torch.float64 for value in args):
            self.count += 1
        return func(*args, **kwargs)


_ROUNDED: dict[str, Callable[[float], float]] = {
    "eps": lambda value: float(np.float32(value)),
    "momentum": lambda value: 1.0 - float(np.float32(1.0 - value)),
}
"""A constant of a torch normalisation, rounded to float32; paddle's momentum is one minus torch's."""


class ConstantsInFloat32(TorchFunctionMode):
    """Inside the block normalisations compute with an epsilon and a momentum in float32, as paddle's do."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        given = dict(kwargs or {})
        if name.endswith("_norm") and len(args) <= len(names := ARGUMENTS.get(name, ())):
            given |= zip(names, args, strict=False)
            args = ()
            for argument, rounded in _ROUNDED.items():
                if isinstance(value := given.get(argument), float):
                    given[argument] = rounded(value)
        return func(*args, **given)
