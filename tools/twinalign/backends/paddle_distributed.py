"""Several processes of paddle: joining them, and a training step whose gradients are averaged over them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import paddle
from paddle import distributed


def join(device: str) -> tuple[int, int]:
    """Join the processes of the launcher, on a device of this rank's own; returns its rank and their number.

    Raises:
        RuntimeError: there are fewer GPUs than processes.
    """
    if device == "gpu":
        own, visible = distributed.ParallelEnv().device_id, paddle.device.cuda.device_count()
        if own >= visible:
            raise RuntimeError(f"rank {own} has no GPU, {visible} are visible")
        paddle.set_device(f"gpu:{own}")
    else:
        paddle.set_device("cpu")
    os.environ["PADDLE_DISTRI_BACKEND"] = "nccl" if device == "gpu" else "gloo"
    distributed.init_parallel_env()
    return distributed.get_rank(), distributed.get_world_size()


class Step(paddle.nn.Layer):
    """A model with what makes a loss of it, so that a wrapper sees one call from inputs to loss.

    Attributes:
        model: the case's model.
        seen: what the last call gave beside the loss.
    """

    def __init__(self, model: paddle.nn.Layer, run: Callable[[Any, Mapping[str, Any]], tuple[Any, paddle.Tensor]]):
        super().__init__()
        self.model = model
        self.seen: Any = None
        self._run = run

    def forward(self, inputs: Mapping[str, Any]) -> paddle.Tensor:
        """The loss to be differentiated."""
        self.seen, loss = self._run(self.model, inputs)
        return loss


def data_parallel(step: paddle.nn.Layer) -> paddle.nn.Layer:
    """Average gradients over the ranks; parameters that take no part in the loss are allowed."""
    return paddle.DataParallel(step, find_unused_parameters=True)
