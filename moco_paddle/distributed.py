"""Several processes: who this one is, and what the ranks tell each other.

The processes are started by `paddle.distributed.launch`, one a device, on one node or several. Everything that ranks
exchange goes through this file, so that the ranks can also be threads of one process (`simulate_ranks`): the semantics
of a thousand ranks are checked that way without them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import paddle
from paddle import Tensor, nn
from paddle import distributed as dist
from paddle.autograd import PyLayer

from .simulation import SimulatedRank, run_simulated

Result = TypeVar("Result")

_simulated = threading.local()


def _simulated_rank() -> SimulatedRank | None:
    return getattr(_simulated, "rank", None)


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
    if (simulated := _simulated_rank()) is not None:
        return simulated.rank
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes, 1 where no process group is up."""
    if (simulated := _simulated_rank()) is not None:
        return simulated.world_size
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def ranks_of_node() -> int:
    """Return the number of processes that the launcher started on this node, 1 where there was none."""
    return int(os.environ.get("PADDLE_LOCAL_SIZE", "1"))


def number_of_gpus() -> int:
    """Return how many GPUs paddle sees, 0 where it is built without support of them."""
    return paddle.device.cuda.device_count() if paddle.device.is_compiled_with_cuda() else 0


def require_gpu(place: int = 0) -> None:
    """Refuse a GPU that is not there.

    Raises:
        ValueError: there are none, or not as many that there is one for the process at this place of its node.
    """
    if number_of_gpus() == 0:
        raise ValueError("--device gpu: paddle sees no GPU here; give --device cpu, or mend its installation")
    if place >= number_of_gpus():
        raise ValueError(
            f"--device gpu: process {place} of this node has no GPU, {number_of_gpus()} are visible; "
            "start as many processes as there are GPUs"
        )


@contextmanager
def process_group(device: str) -> Iterator[str]:
    """Join the processes of the launcher, if there was one, and yield this rank's device.

    Args:
        device: "cpu" (gloo) or "gpu" (nccl). A rank takes the GPU that the launcher chose for it, before anything else
            can allocate on another; `CUDA_VISIBLE_DEVICES` chooses among which.

    Raises:
        ValueError: there is no GPU, or there are fewer than processes on this node.
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
    dist.init_parallel_env()
    yield place
    dist.destroy_process_group()  # not after an error: the other ranks may be gone


def data_parallel(model: nn.Layer) -> nn.Layer:
    """Return `model` so wrapped that its gradients are the mean over the ranks; with one rank, as it is.

    Parameters that require no gradient take no part. Buffers stay each rank's own: synchronised batch norm keeps them
    equal.
    """
    return model if world_size() == 1 else paddle.DataParallel(model)


def unwrapped(model: nn.Layer) -> nn.Layer:
    """Return the model within what `data_parallel` gave."""
    return model._layers if isinstance(model, paddle.DataParallel) else model


def all_gather(x: Tensor) -> list[Tensor]:
    """Return the tensors of all ranks, which have one shape, in rank order; no gradient flows back."""
    if world_size() == 1:
        return [x]
    if (simulated := _simulated_rank()) is not None:
        return simulated.exchange(x.detach().clone())
    _enter()
    gathered: list[Tensor] = []
    dist.all_gather(gathered, x.detach().contiguous())
    return gathered


@paddle.no_grad()
def gather_over_ranks(x: Tensor) -> Tensor:
    """Return the ranks' `[N, dim]` tensors one below the other, in rank order; no gradient flows back."""
    return x if world_size() == 1 else paddle.concat(all_gather(x), axis=0)


def _summed(x: Tensor) -> Tensor:
    if (simulated := _simulated_rank()) is not None:
        return paddle.stack(simulated.exchange(x.detach().clone())).sum(axis=0)
    _enter()
    total = x.detach().clone()
    dist.all_reduce(total)
    return total


class _SumOverRanks(PyLayer):
    """Every rank's result depends on every rank's input: the gradient of the sum of all losses is summed as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _summed(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _summed(gradient)


def sum_over_ranks(x: Tensor) -> Tensor:
    """Return the sum of the ranks' tensors, of one shape, with gradient: each rank's is that of all losses together."""
    return x if world_size() == 1 else _SumOverRanks.apply(x)


def gather_values(values: Sequence[float], like: Tensor | None = None) -> list[list[float]]:
    """Return the numbers of all ranks, in rank order, exactly; every rank gives as many, on the device of `like`."""
    if world_size() == 1:
        return [list(values)]
    gathered = all_gather(paddle.to_tensor(list(values), dtype="float64", place=None if like is None else like.place))
    return [tensor.tolist() for tensor in gathered]


def gather_objects(value: Any) -> list[Any]:
    """Return what each rank gives, in rank order: plain values that can be pickled."""
    if world_size() == 1:
        return [value]
    if (simulated := _simulated_rank()) is not None:
        return simulated.exchange(value)
    _enter()
    gathered: list[Any] = []
    dist.all_gather_object(gathered, value)
    return gathered


def simulate_ranks(count: int, function: Callable[[int], Result]) -> list[Result]:
    """Call `function(rank)` once a rank, the ranks being threads of this process that take turns.

    Within it this module's functions see `count` ranks. One thread runs at a time, and the turn passes on where ranks
    exchange something; results depend on no order.

    Returns:
        What each rank's call returned, in rank order.

    Raises:
        ValueError: there is no rank.
        Exception: the first that a rank raised; the others are ended.
    """

    def as_rank(simulated: SimulatedRank) -> Result:
        _simulated.rank = simulated
        try:
            return function(simulated.rank)
        finally:
            _simulated.rank = None

    return run_simulated(count, as_rank)


def on_rank_0(action: Callable[[], Result]) -> Result | None:
    """Let rank 0 alone do something with files, and all ranks hear whether it went well.

    Returns:
        What it gave, on rank 0; None on the others.

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


def require_equal(facts: dict[str, Any]) -> None:
    """Refuse ranks that would not train the same: another version, another option.

    Args:
        facts: plain values by name, which every rank must share.

    Raises:
        ValueError: on every rank; the message names the first fact and the first rank that differ.
    """
    everyone = gather_objects(facts)
    for name, value in everyone[0].items():
        for other, own in enumerate(everyone):
            if repr(own.get(name)) != repr(value):
                raise ValueError(
                    f"rank {other} has {name} = {own.get(name)!r}, rank 0 has {value!r}; start all ranks alike"
                )
