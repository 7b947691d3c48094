"""Trainings in torch, watched by hooks in any loop."""

from collections.abc import Sequence

import torch

from twinalign.backends.torch.steps import watching_steps as watching_steps


@torch.no_grad()
def norms(tensors: Sequence[torch.Tensor]) -> list[float]:
    if not tensors:
        return []
    found: list[float] = torch.stack([tensor.detach().double().square().sum() for tensor in tensors]).sqrt().tolist()
    return found


@torch.no_grad()
def distance(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    return float(torch.stack([(one.double() - other.double()).square().sum() for one, other in pairs]).sum().sqrt())
