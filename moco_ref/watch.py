"""No rank waits for ever: one that is gone or stands still is named, and the others end."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from . import distributed

LOST_RANK = 3
"""Exit code of a rank that ends because of another."""
_LONGEST_LOOK = 10.0
"""Seconds in which the store answers, unless its node is gone."""

_OF_EXCHANGES = re.compile(
    r"gloo|nccl|process ?group|tcp_?store|connection (closed|reset|refused)|broken pipe|timed out", re.IGNORECASE
)
"""What the frameworks say where an exchange breaks off: they raise bare RuntimeErrors for it, as for much else."""


class LostRankError(Exception):
    """Another rank is gone; the message is one line that says which."""


class Watch:
    """Context that ends this rank with one line where another is gone or stands still.

    Every rank tells the launcher's key-value store how many exchanges it has entered, and a thread of its own looks at
    the others' numbers: the main thread may hang in a collective meanwhile. What the main thread cannot raise, that
    thread writes before it ends the process. With one rank there is nothing to watch.

    Args:
        timeout: seconds after which the ranks that wait give up one that is behind.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._peers: list[tuple[str, int]] = []

    def __enter__(self) -> Watch:
        if distributed.is_launched():
            self._peers = distributed.gather_objects((socket.gethostname(), os.getpid()))
            places = distributed.rank(), distributed.world_size()
            self._thread = threading.Thread(target=self._look, args=places, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._over.set()
        if self._thread is not None:
            # A thread that the interpreter's end finds inside the store's code would abort the process.
            self._thread.join(_LONGEST_LOOK)
        if self._thread is not None and _broke_off(error):
            raise LostRankError(f"{self._who_is_gone(error)}; --resume goes on from the last checkpoint") from error

    def _who_is_gone(self, error: BaseException) -> str:
        # A collective breaks off as soon as a process has ended, and the launcher may not have noticed yet.
        own_host = socket.gethostname()
        for rank, (host, process) in enumerate(self._peers):
            if host == own_host and _has_ended(process):
                return f"rank {rank} is gone: its process {process} has ended"
        return f"the ranks can no longer exchange anything: {str(error).strip().splitlines()[0][:200]}"

    def _look(self, own: int, world: int) -> None:
        store = _store()
        told, seen, since = 0, [-1] * world, [0.0] * world
        while not self._over.wait(min(1.0, self.timeout / 10)):
            try:
                entered = distributed.exchanges_entered()
                store.add(f"watch/{own}", entered - told)
                told = entered
                counts = [store.add(f"watch/{rank}", 0) for rank in range(world)]
            except RuntimeError:
                if self._over.is_set():
                    return
                self._give_up("the launcher's store does not answer: its node is gone")
            now = time.monotonic()
            since = [at if count == before else now for at, count, before in zip(since, counts, seen, strict=True)]
            seen = counts
            behind = min(range(world), key=counts.__getitem__)
            if counts[behind] < max(counts) and now - since[behind] > self.timeout and not self._over.is_set():
                host, process = self._peers[behind]
                self._give_up(
                    f"rank {behind} (process {process} on {host}) stands still: the others have waited for it for "
                    f"{self.timeout:g} s"
                )

    def _give_up(self, why: str) -> None:
        print(f"error: {why}; --resume goes on from the last checkpoint", file=sys.stderr, flush=True)
        os._exit(LOST_RANK)


def _broke_off(error: BaseException | None) -> bool:
    """Whether an error is of an exchange with the other ranks, and not of this rank's own work."""
    return isinstance(error, RuntimeError) and _OF_EXCHANGES.search(str(error)) is not None


def _has_ended(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"


def _store() -> Any:
    """A client of its own, for a thread of its own, of the store that the launcher serves."""
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
