"""Mistakes that ranks can make together, applied to the reference's ranks inside a block."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.overrides import TorchFunctionMode

from twinalign.patching import replaced

_WITH_LABELS = ("cross_entropy", "nll_loss", "gather", "take_along_dim")


class LabelsWithoutOffset(TorchFunctionMode):
    """Inside the block, labels count from the first sample of this rank, not of all ranks."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._rank = rank

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if getattr(function, "__name__", "") not in _WITH_LABELS:
            return function(*arguments, **(keywords or {}))
        moved = [self._moved(value) for value in arguments]
        return function(*moved, **{name: self._moved(value) for name, value in (keywords or {}).items()})

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.int64 or not value.numel():
            return value
        offset = self._rank * value.shape[0]
        return value - offset if int(value.min()) >= offset else value


def _give_own(found: list[torch.Tensor], own: torch.Tensor, *_: Any, **__: Any) -> None:
    for tensor in found:
        tensor.copy_(own)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Make this process the only rank: anything that asks for other ranks finds none."""
    stands_in: dict[str, Callable[..., Any]] = {
        "get_world_size": lambda *_, **__: 1,
        "get_rank": lambda *_, **__: 0,
        "all_gather": _give_own,
        "all_reduce": lambda *_, **__: None,
    }
    with contextlib.ExitStack() as stack:
        for name, function in stands_in.items():
            stack.enter_context(replaced(distributed, name, function))
        yield


def batch_norms(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Batch norms by path, of every class."""
    kind = torch.nn.modules.batchnorm._BatchNorm
    return {path: layer for path, layer in model.named_modules() if isinstance(layer, kind)}


@contextlib.contextmanager
def normalising_alone(layers: Mapping[str, torch.nn.Module]) -> Iterator[None]:
    """Let these layers compute their statistics over this rank's batch only."""

    def by_itself(original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*arguments: Any, **keywords: Any) -> Any:
            with alone():
                return original(*arguments, **keywords)

        return forward

    with contextlib.ExitStack() as stack:
        for layer in layers.values():
            stack.enter_context(replaced(layer, "forward", by_itself(layer.forward)))
        yield


def with_gradient_times(loss: torch.Tensor, factor: float) -> torch.Tensor:
    """The same loss, whose gradient is `factor` times as large."""
    return loss * factor - (loss * (factor - 1)).detach() if loss.requires_grad else loss


class _Gathered(torch.autograd.Function):
    """The ranks' tensors concatenated; each rank's gradient is that of all ranks' losses by its part."""

    @staticmethod
    def forward(context: Any, own: torch.Tensor, of_all: bool) -> torch.Tensor:
        context.of_all, context.size = of_all, own.shape[0]
        found = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
        _all_gather(found, own.contiguous())
        return torch.cat(found)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        if context.of_all:
            gradient = gradient.contiguous().clone()
            distributed.all_reduce(gradient)
        start = distributed.get_rank() * context.size
        return gradient[start : start + context.size], None


_all_gather = distributed.all_gather


class _GatherWithGradient(TorchFunctionMode):
    """Connects gathered tensors to the tensor that was gathered, recognised by its memory."""

    def __init__(self, of_all: bool) -> None:
        super().__init__()
        self._of_all = of_all
        self._differentiable: dict[int, torch.Tensor] = {}
        self._gathered: dict[int, torch.Tensor] = {}

    def gather(self, found: list[torch.Tensor], own: torch.Tensor, *others: Any, **keywords: Any) -> Any:
        result = _all_gather(found, own, *others, **keywords)
        source = self._differentiable.get(own.data_ptr())
        if source is not None and source.shape == own.shape:
            self._gathered[found[0].data_ptr()] = source
        return result

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        if function in (torch.cat, torch.concat) and self._gathered:
            first = next(iter(arguments[0]), None)
            source = self._gathered.get(first.data_ptr()) if isinstance(first, torch.Tensor) else None
            if source is not None:
                with torch.enable_grad():
                    return _Gathered.apply(source, self._of_all)
        if isinstance(result, torch.Tensor) and result.requires_grad and result.numel():
            self._differentiable[result.data_ptr()] = result
        return result


@contextlib.contextmanager
def gathering_with_gradient(of_all: bool) -> Iterator[None]:
    """Let gradients flow back through gathered tensors: of all ranks' losses, or only of this rank's."""
    mode = _GatherWithGradient(of_all)
    with mode, replaced(distributed, "all_gather", mode.gather):
        yield


def load_weights(model: torch.nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Give a model on this rank parameters and buffers of its own."""
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            if name in arrays:
                tensor.copy_(torch.from_numpy(np.ascontiguousarray(arrays[name])))
