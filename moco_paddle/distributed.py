"""Several processes: the rank of this one, and the exchanges between ranks.

The processes are started by `paddle.distributed.launch`, one per device, on one node or several. Everything that
ranks exchange goes through this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import paddle
from paddle import Tensor, nn
from paddle import distributed as dist
from paddle.autograd import PyLayer
from paddle.base.core import TCPStore

from moco_common.distributed import Place, Watch, ended_with_launcher, killed_with_launcher, this_process
from moco_paddle.devices import require_gpu

Result = TypeVar("Result")

_entered = 0


def exchanges_entered() -> int:
    """Return how many exchanges with the other ranks this process has begun: a rank that has begun fewer is behind."""
    return _entered


def _enter() -> None:
    global _entered
    _entered += 1


def is_launched() -> bool:
    """Return whether a launcher started this process as one of several ranks."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1


def rank() -> int:
    """Return this process's rank, 0 where no process group is up."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes, 1 where no process group is up."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def ranks_of_node() -> int:
    """Return the number of processes that the launcher started on this node, 1 where there was none."""
    return int(os.environ.get("PADDLE_LOCAL_SIZE", "1"))


def own_place() -> Place:
    """Return where this process stands among all."""
    return Place(rank(), world_size(), ranks_of_node())


@contextmanager
def process_group(device: str) -> Iterator[str]:
    """Join the processes of the launcher, if there was one, and yield this rank's device.

    Args:
        device: "cpu" (gloo) or "gpu" (nccl). A rank takes a GPU of its own, before anything else can allocate on
            another; `CUDA_VISIBLE_DEVICES` chooses among which.

    Raises:
        ValueError: there are fewer GPUs than processes on this node.
    """
    place = "cpu"
    if device == "gpu":
        # diff: paddle's launcher names a GPU for each process where torchrun counts them; built for CPUs it has
        # none to name.
        require_gpu()
        local_rank = dist.ParallelEnv().device_id
        require_gpu(local_rank)
        place = f"gpu:{local_rank}"
    paddle.set_device(place)
    if not is_launched():
        yield place
        return
    # diff: the launcher chooses the backend by the devices that it finds.
    os.environ["PADDLE_DISTRI_BACKEND"] = "nccl" if device == "gpu" else "gloo"
    has_launcher = "PADDLE_LOCAL_SIZE" in os.environ
    with ended_with_launcher() if has_launcher else nullcontext():
        # diff: paddle's ranks wait for rank 0 in C++ and keep Python's lock, so that no thread can end them.
        with killed_with_launcher() if has_launcher else nullcontext():
            dist.init_parallel_env()
        yield place
        dist.destroy_process_group()  # not after an error: the other ranks may be gone


def data_parallel(model: nn.Layer) -> nn.Layer:
    """Return `model` wrapped so that its gradients are means over the ranks; with one rank, unchanged.

    Parameters that require no gradient take no part. Buffers stay each rank's own: synchronised batch norm keeps them
    equal.
    """
    # diff: paddle's wrapper leaves buffers alone, and knows the device by itself.
    return model if world_size() == 1 else paddle.DataParallel(model)


def unwrapped(model: nn.Layer) -> nn.Layer:
    """Return the model inside the wrapper of `data_parallel`."""
    return model._layers if isinstance(model, paddle.DataParallel) else model


def all_gather(x: Tensor) -> list[Tensor]:
    """Return the tensors of all ranks, which have one shape, in rank order; no gradient flows back."""
    if world_size() == 1:
        return [x]
    _enter()
    gathered: list[Tensor] = []  # diff: paddle appends, torch fills what is there.
    dist.all_gather(gathered, x.detach().contiguous())
    return gathered


@paddle.no_grad()
def gather_over_ranks(x: Tensor) -> Tensor:
    """Return the ranks' `[N, dim]` tensors concatenated in rank order; no gradient flows back."""
    return x if world_size() == 1 else paddle.concat(all_gather(x), axis=0)


def _summed(x: Tensor) -> Tensor:
    _enter()
    total = x.detach().clone()
    dist.all_reduce(total)
    return total


class _SumOverRanks(PyLayer):  # diff: paddle's name of an autograd.Function.
    """Every rank's result depends on every rank's input: the gradient of the sum of all losses is summed as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _summed(x)

    @staticmethod  # diff: paddle has no second derivative to forbid.
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _summed(gradient)


def sum_over_ranks(x: Tensor) -> Tensor:
    """Return the sum of the ranks' tensors, of one shape, with gradient: each rank's is that of all losses together."""
    return x if world_size() == 1 else _SumOverRanks.apply(x)


def gather_values(values: Sequence[float], like: Tensor | None = None) -> list[list[float]]:
    """Return the numbers of all ranks exactly, in rank order; each rank gives as many, on the device of `like`."""
    if world_size() == 1:
        return [list(values)]
    gathered = all_gather(paddle.to_tensor(list(values), dtype="float64", place=None if like is None else like.place))
    return [tensor.tolist() for tensor in gathered]


def gather_objects(value: Any) -> list[Any]:
    """Return each rank's value, in rank order: plain values that can be pickled."""
    if world_size() == 1:
        return [value]
    _enter()
    gathered: list[Any] = []  # diff: paddle appends here as well.
    dist.all_gather_object(gathered, value)
    return gathered


def on_rank_0(action: Callable[[], Result]) -> Result | None:
    """Let rank 0 alone work with files, and tell all ranks whether it succeeded.

    Returns:
        Its result on rank 0; None on the others.

    Raises:
        OSError: on every rank, where it failed.
    """
    if world_size() == 1:
        return action()
    result, failure = None, None
    if rank() == 0:
        try:
            result = action()
        except OSError as error:
            failure = str(error)
    failure = gather_objects(failure)[0]
    if failure is not None:
        raise OSError(f"rank 0: {failure}")
    return result


def watch(timeout: float) -> AbstractContextManager:
    """Return the context that ends this rank with one line if another is gone or stands still for `timeout` seconds.

    To be called within `process_group`. With one process there is nothing to watch.
    """
    if not is_launched():
        return nullcontext()
    peers = gather_objects(this_process())
    return Watch(timeout, rank(), peers, exchanges_entered, lambda: _store(timeout))


def _store(timeout: float) -> TCPStore:
    """A separate client of the launcher's store, for a separate thread."""
    # diff: paddle's launcher gives both in one, or with --backend=gloo the ranks' addresses alone, of which the first
    # has the store; and its store needs the number of processes.
    address = os.environ.get("PADDLE_MASTER") or os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0]
    host, _, port = address.rpartition(":")
    return TCPStore(host, int(port), False, world_size(), int(max(timeout, 30)))
