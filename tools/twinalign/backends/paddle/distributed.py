"""Several processes of paddle: joining them, and a training step whose gradients are averaged over them."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import paddle


def join_ranks(device: str) -> tuple[int, int]:
    if device == "gpu":
        own, visible = paddle.distributed.ParallelEnv().device_id, paddle.device.cuda.device_count()
        if own >= visible:
            raise RuntimeError(f"rank {own} has no GPU, {visible} are visible")
        paddle.set_device(f"gpu:{own}")
    else:
        paddle.set_device("cpu")
    os.environ["PADDLE_DISTRI_BACKEND"] = "nccl" if device == "gpu" else "gloo"
    paddle.distributed.init_parallel_env()
    return paddle.distributed.get_rank(), paddle.distributed.get_world_size()


class _LossLayer(paddle.nn.Layer):
    def __init__(self, model: paddle.nn.Layer, run: Callable[[Any, Mapping[str, Any]], tuple[Any, paddle.Tensor]]):
        super().__init__()
        self.model = model
        self.seen: Any = None
        self._run = run

    def forward(self, inputs: Mapping[str, Any]) -> paddle.Tensor:
        self.seen, loss = self._run(self.model, inputs)
        return loss


def leave_ranks() -> None:
    if paddle.distributed.is_initialized():
        paddle.distributed.destroy_process_group()


def loss_layer(
    model: paddle.nn.Layer, run: Callable[[Any, Mapping[str, Any]], tuple[Any, paddle.Tensor]]
) -> paddle.nn.Layer:
    return _LossLayer(model, run)


def data_parallel(step: paddle.nn.Layer) -> paddle.nn.Layer:
    return paddle.DataParallel(step, find_unused_parameters=True)
