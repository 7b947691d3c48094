"""Ranks as threads that take turns: what a thousand processes would exchange, in one process.

`SimulatedGroup` takes the place of torch.distributed or paddle.distributed in a twin's `distributed` module, so that
the twin's own code runs as it does between processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import paddle
import torch

Result = TypeVar("Result")


class _AnotherRankFailedError(Exception):
    """Ends a rank that waits for one that has failed."""


class _World:
    """What the ranks share: who may run, and what each has given to the exchange under way."""

    def __init__(self, count: int) -> None:
        self.turn = threading.Lock()
        self.everyone = threading.Barrier(count)
        self.given: list[Any] = [None] * count
        self.failures: list[BaseException] = []
        self.ended: int | None = None
        """The first rank that has returned: from then on nobody can exchange anything."""

    def fail(self, error: BaseException) -> None:
        """Keep the error, and end the ranks that wait."""
        self.failures.append(error)
        self.everyone.abort()


class SimulatedRank:
    """One thread that is taken for a rank."""

    def __init__(self, rank: int, world: _World) -> None:
        self.rank = rank
        self.world_size = len(world.given)
        self._world = world

    def exchange(self, value: Any) -> list[Any]:
        """Give a value, and return those of all ranks in rank order once all have given theirs."""
        world = self._world
        if world.ended is not None:
            raise RuntimeError(f"rank {self.rank} waits for rank {world.ended}, which has ended")
        world.given[self.rank] = value
        self._wait()
        found = list(world.given)
        self._wait()  # nobody gives to the next exchange before all have taken from this one
        return found

    def _wait(self) -> None:
        self._world.turn.release()
        try:
            self._world.everyone.wait()
        except threading.BrokenBarrierError:
            raise _AnotherRankFailedError from None
        finally:
            self._world.turn.acquire()

    def run(self, function: Callable[[SimulatedRank], Result], results: list[Any]) -> None:
        """Take the turn and call `function`; a failure ends the ranks that wait."""
        world = self._world
        with world.turn:
            try:
                results[self.rank] = function(self)
            except _AnotherRankFailedError:
                pass
            except BaseException as error:
                world.fail(error)
            else:
                world.ended = self.rank
                if world.everyone.n_waiting:
                    world.fail(RuntimeError(f"rank {self.rank} has ended while others wait for it"))


_of_thread = threading.local()


class SimulatedGroup:
    """What the twins ask of torch.distributed and paddle.distributed, answered for the rank that a thread is."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return getattr(_of_thread, "rank", None) is not None

    def get_rank(self) -> int:
        return _of_thread.rank.rank

    def get_world_size(self) -> int:
        return _of_thread.rank.world_size

    def all_gather(self, gathered: list[Any], x: Any) -> None:
        gathered[:] = _of_thread.rank.exchange(x.clone())

    def all_gather_object(self, gathered: list[Any], value: Any) -> None:
        gathered[:] = _of_thread.rank.exchange(value)

    def all_reduce(self, x: Any) -> None:
        given = _of_thread.rank.exchange(x.clone())
        if isinstance(x, torch.Tensor):
            x.copy_(torch.stack(given).sum(dim=0))
        else:
            x.set_value(paddle.stack(given).sum(axis=0))


def simulate_ranks(distributed: ModuleType, count: int, function: Callable[[int], Result]) -> list[Result]:
    """Call `function(rank)` once a rank, the ranks being threads of this process that take turns.

    Within it `distributed`, a twin's module, sees `count` ranks. One thread runs at a time, and the turn passes on
    where ranks exchange something; results depend on no order.

    Returns:
        What each rank's call returned, in rank order.

    Raises:
        ValueError: there is no rank.
        Exception: the first that a rank raised; the others are ended.
    """
    if count < 1:
        raise ValueError(f"ranks: {count} is not a number of them; give 1 or more")

    def as_rank(simulated: SimulatedRank) -> Result:
        _of_thread.rank = simulated
        return function(simulated.rank)

    world = _World(count)
    results: list[Any] = [None] * count
    threads = [
        threading.Thread(target=SimulatedRank(rank, world).run, args=(as_rank, results), daemon=True)
        for rank in range(count)
    ]
    real, distributed.dist = distributed.dist, SimulatedGroup()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        distributed.dist = real
    if world.failures:
        raise world.failures[0]
    return results
