"""Ranks as threads that take turns: what a thousand processes would exchange, in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

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


def run_simulated(count: int, function: Callable[[SimulatedRank], Result]) -> list[Result]:
    """Run `function` once a rank, each in a thread of its own, one at a time; see `distributed.simulate_ranks`."""
    if count < 1:
        raise ValueError(f"ranks: {count} is not a number of them; give 1 or more")
    world = _World(count)
    results: list[Any] = [None] * count
    threads = [
        threading.Thread(target=SimulatedRank(rank, world).run, args=(function, results), daemon=True)
        for rank in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if world.failures:
        raise world.failures[0]
    return results
