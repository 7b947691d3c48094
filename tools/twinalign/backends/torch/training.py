"""Trainings in torch, watched by hooks in any loop."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn import functional

from twinalign.backends.torch.reference_only import steps
from twinalign.patching import replaced


def watching_steps(
    before: Callable[[Any], None],
    after: Callable[[Any], None],
    inside: Callable[[Any], None] | None = None,
) -> AbstractContextManager[None]:
    return steps.watching_steps(before, after, inside)


@torch.no_grad()
def norms(tensors: Sequence[torch.Tensor]) -> list[float]:
    if not tensors:
        return []
    found: list[float] = torch.stack([tensor.detach().double().square().sum() for tensor in tensors]).sqrt().tolist()
    return found


@torch.no_grad()
def distance(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    return float(torch.stack([(one.double() - other.double()).square().sum() for one, other in pairs]).sum().sqrt())


@contextlib.contextmanager
def following(conventions: Collection[str]) -> Iterator[None]:
    if "bn_running_var_biased" not in conventions:
        yield
        return
    own, is_inside = functional.batch_norm, False

    def batch_norm(
        input: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> torch.Tensor:
        nonlocal is_inside
        if is_inside or not training or running_var is None:
            return own(input, running_mean, running_var, weight, bias, training, momentum, eps)
        before, is_inside = running_var.clone(), True
        try:  # where calls are watched, torch's function calls this one once more
            output = own(input, running_mean, running_var, weight, bias, training, momentum, eps)
        finally:
            is_inside = False
        count = input.numel() // input.shape[1]  # torch has multiplied the batch's variance by count / (count - 1)
        # Of `data`, since the gradient's formula has kept the tensor, and would see that it has changed.
        running_var.data -= (running_var.data - (1.0 - momentum) * before) / count
        return output

    with replaced(functional, "batch_norm", batch_norm):
        yield
