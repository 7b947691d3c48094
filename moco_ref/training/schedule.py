"""The learning rate of an optimizer; the MoCo momentum needs no framework."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from moco_common.training.schedule import adjust_moco_momentum, learning_rate_at

__all__ = ["adjust_learning_rate", "adjust_moco_momentum"]


def adjust_learning_rate(optimizer: Optimizer, epoch: float, args: Any) -> float:
    """Set and return the learning rate at the fractional `epoch`; `args` is as `learning_rate_at` has it."""
    learning_rate = learning_rate_at(epoch, args)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    return learning_rate
