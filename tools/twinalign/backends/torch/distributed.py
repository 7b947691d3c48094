"""Several processes of torch: joining them, and a training step whose gradients are averaged over them."""

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch


def join_ranks(device: str) -> tuple[int, int]:
    if device == "gpu":
        own, visible = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if own >= visible:
            raise RuntimeError(f"rank {own} has no GPU, {visible} are visible")
        torch.cuda.set_device(own)
    torch.distributed.init_process_group("nccl" if device == "gpu" else "gloo")
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


class _LossLayer(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, run: Callable[[Any, Mapping[str, Any]], tuple[Any, torch.Tensor]]):
        super().__init__()
        self.model = model
        self.seen: Any = None
        self._run = run

    def forward(self, inputs: Mapping[str, Any]) -> torch.Tensor:
        self.seen, loss = self._run(self.model, inputs)
        return loss


def leave_ranks() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def loss_layer(
    model: torch.nn.Module, run: Callable[[Any, Mapping[str, Any]], tuple[Any, torch.Tensor]]
) -> torch.nn.Module:
    return _LossLayer(model, run)


def data_parallel(step: torch.nn.Module) -> torch.nn.Module:
    parameter = next(iter(step.parameters()))
    # broadcast_buffers would overwrite the buffers of each rank with those of rank 0; paddle does nothing of the kind.
    devices = [parameter.device] if parameter.is_cuda else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the option's new name, which torch 2.1 does not know
        return torch.nn.parallel.DistributedDataParallel(
            step, device_ids=devices, broadcast_buffers=False, find_unused_parameters=True
        )
