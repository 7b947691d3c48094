"""Several processes of torch: joining them, and a training step whose gradients are averaged over them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel


def join(device: str) -> tuple[int, int]:
    """Join the processes of the launcher, on a device of this rank's own; returns its rank and their number.

    Raises:
        RuntimeError: there are fewer GPUs than processes.
    """
    if device == "gpu":
        own, visible = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if own >= visible:
            raise RuntimeError(f"rank {own} has no GPU, {visible} are visible")
        torch.cuda.set_device(own)
    distributed.init_process_group("nccl" if device == "gpu" else "gloo")
    return distributed.get_rank(), distributed.get_world_size()


class Step(torch.nn.Module):
    """A model with what makes a loss of it, so that a wrapper sees one call from inputs to loss.

    Attributes:
        model: the case's model.
        seen: what the last call gave beside the loss.
    """

    def __init__(self, model: torch.nn.Module, run: Callable[[Any, Mapping[str, Any]], tuple[Any, torch.Tensor]]):
        super().__init__()
        self.model = model
        self.seen: Any = None
        self._run = run

    def forward(self, inputs: Mapping[str, Any]) -> torch.Tensor:
        """The loss to be differentiated."""
        self.seen, loss = self._run(self.model, inputs)
        return loss


def data_parallel(step: torch.nn.Module) -> torch.nn.Module:
    """Average gradients over the ranks; parameters that take no part in the loss are allowed.

    Buffers stay each rank's own, as in paddle: torch would otherwise overwrite them with rank 0's before each call.
    """
    parameter = next(iter(step.parameters()))
    devices = [parameter.device] if parameter.is_cuda else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the option's new name, which torch 2.1 does not know
        return DistributedDataParallel(step, device_ids=devices, broadcast_buffers=False, find_unused_parameters=True)
