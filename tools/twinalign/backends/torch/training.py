"""Trainings in torch, watched by hooks in any loop."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from twinalign.backends.torch.reference_only import steps


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
