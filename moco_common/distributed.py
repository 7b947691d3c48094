"""Several processes: if one is gone or stands still, the others name it and end; differing settings are refused."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

LOST_RANK = 3
"""Exit code of a rank that ends because of another."""
_LONGEST_LOOK = 10.0
"""Seconds in which the store must answer, or its node is gone."""

_LONGEST_DEATH = 5.0
"""Seconds that a process may take to end after its connections have broken."""

_SILENT_SECONDS = 30.0
"""After which a rank whose watch says nothing is stopped, or its node hangs."""
_IDLE_SECONDS = 45.0
"""After which a rank that computes nothing, while the others wait for it, stands still."""
_LEAST_SECONDS = 0.2
"""Seconds of computing within that time that count as work."""
_TURNS = 5
"""One look in so many is for signs of life, which matter after many seconds only."""
_IS_OVER = 1 << 40
"""Added to the number of its looks by a rank that watches no longer, because its work is done."""

_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""

_OF_EXCHANGES = re.compile(
    r"gloo|nccl|process ?group|tcp_?store|connection (closed|reset|refused)|broken pipe|timed out", re.IGNORECASE
)
"""The frameworks' messages for a broken exchange, which they raise as plain RuntimeErrors."""


class LostRankError(Exception):
    """Another rank is gone; the message is one line that says which."""


@dataclass(frozen=True)
class Place:
    """Where this process stands.

    Attributes:
        rank, world_size: this process and how many there are.
        ranks_of_node: how many there are on this node.
    """

    rank: int = 0
    world_size: int = 1
    ranks_of_node: int = 1


class Store(Protocol):
    """The launcher's key-value store, as both frameworks' clients have it."""

    def add(self, key: str, amount: int) -> int:
        """Add to the number of a key, 0 at first, and return it."""


def require_equal(facts_of_ranks: Sequence[dict[str, Any]]) -> None:
    """Refuse ranks that would train differently, with another version or option.

    Args:
        facts_of_ranks: each rank's plain values by name, which every rank must share.

    Raises:
        ValueError: the message names the first fact and the first rank that differ.
    """
    for name, value in facts_of_ranks[0].items():
        for other, own in enumerate(facts_of_ranks):
            if repr(own.get(name)) != repr(value):
                raise ValueError(
                    f"rank {other} has {name} = {own.get(name)!r}, rank 0 has {value!r}; start all ranks alike"
                )


class Watch:
    """Context that ends this rank with one line if another is gone or stands still.

    Every rank tells the launcher's key-value store how many exchanges it has entered, how long it has computed and that
    it is there. A separate thread watches the others' numbers, since the main thread may hang in a collective. If the
    main thread cannot raise the error, that thread prints it and ends the process.

    Args:
        timeout: seconds after which the ranks that wait give up one that is behind, though it computes.
        rank: this process's.
        peers: host and process of every rank, as `this_process` gives them.
        exchanges_entered: tells how many exchanges this rank has begun.
        connect: makes a client of the store, for the thread alone.
    """

    def __init__(
        self,
        timeout: float,
        rank: int,
        peers: list[tuple[str, int]],
        exchanges_entered: Callable[[], int],
        connect: Callable[[], Store],
    ) -> None:
        self.timeout = timeout
        self._rank = rank
        self._peers = peers
        self._exchanges_entered = exchanges_entered
        self._connect = connect
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._over.set()
        is_broken = error is not None and _broke_off(error)
        if is_broken and threading.current_thread() is threading.main_thread():
            # The launcher may end this rank as well, before it has said why.
            signal.signal(signal.SIGTERM, lambda *_: _end_this_rank(self._who_is_gone(error, 0.0)))
        why = self._who_is_gone(error, _LONGEST_DEATH) if is_broken else None
        # A thread that the interpreter's end finds inside the store's code would abort the process.
        self._thread.join(_LONGEST_LOOK)
        if why is not None:
            raise LostRankError(f"{why}; --resume goes on from the last checkpoint") from error

    def _who_is_gone(self, error: BaseException | None, patience: float) -> str:
        """The rank of this node whose process has ended within `patience` seconds, or what the error says."""
        # A process that is killed closes its connections first, and a busy machine may take long over the rest.
        own_host, until = socket.gethostname(), time.monotonic() + patience
        while True:
            for rank, (host, process) in enumerate(self._peers):
                if host == own_host and _has_ended(process):
                    return f"rank {rank} is gone: its process {process} has ended"
            if time.monotonic() >= until:
                return f"the ranks can no longer exchange anything: {str(error).strip().splitlines()[0][:200]}"
            time.sleep(0.05)

    def _look(self) -> None:
        try:
            store = self._connect()
        except (RuntimeError, OSError, LookupError, ValueError) as error:  # nobody would notice a lost rank
            self._give_up(f"the launcher's store cannot be reached ({' '.join(str(error).split())[:200]})")
            return
        ranks = range(len(self._peers))
        told = dict.fromkeys(("exchanges", "work", "looks"), 0)
        counts = {name: [-1] * len(ranks) for name in told}
        since = {name: [time.monotonic()] * len(ranks) for name in told}
        pause, looked, turn = min(1.0, self.timeout / 10), time.monotonic(), 0
        while not self._over.wait(pause):
            own = {"exchanges": self._exchanges_entered()}
            if turn % _TURNS == 0:
                own |= {"work": int(_seconds_computed() / _LEAST_SECONDS), "looks": turn + 1}
            turn += 1
            try:
                found = {name: self._exchange(store, name, value - told[name]) for name, value in own.items()}
            except RuntimeError:
                if not self._over.is_set():
                    self._give_up("the launcher's store does not answer: its node is gone")
                return
            now = time.monotonic()
            was_stopped = now - looked > pause + 5  # and has seen nothing in the meantime
            for name, numbers in found.items():
                changed = [was_stopped or one != other for one, other in zip(numbers, counts[name], strict=True)]
                since[name] = [now if is_new else at for is_new, at in zip(changed, since[name], strict=True)]
            told, counts, looked = told | own, counts | found, now
            if not self._over.is_set():
                self._judge(counts, {name: [now - at for at in times] for name, times in since.items()})
        with contextlib.suppress(RuntimeError):
            store.add(f"looks/{self._rank}", _IS_OVER)

    def _exchange(self, store: Store, name: str, amount: int) -> list[int]:
        """Add to this rank's number of a name; return those of all ranks."""
        return [store.add(f"{name}/{rank}", amount if rank == self._rank else 0) for rank in range(len(self._peers))]

    def _judge(self, counts: dict[str, list[int]], quiet: dict[str, list[float]]) -> None:
        """Give up if a rank stands still, given for how many seconds each number of each rank has not changed."""
        exchanges = counts["exchanges"]
        behind = min(range(len(exchanges)), key=exchanges.__getitem__)
        waited = quiet["exchanges"][behind] if exchanges[behind] < max(exchanges) else 0.0
        silence = [0.0 if looks >= _IS_OVER else at for looks, at in zip(counts["looks"], quiet["looks"], strict=True)]
        if waited > self.timeout:
            self._lose(behind, f"the others have waited for it for {self.timeout:g} s")
        elif max(silence) > _SILENT_SECONDS:
            self._lose(silence.index(max(silence)), f"it has shown no sign of life for {_SILENT_SECONDS:g} s")
        elif min(waited, quiet["work"][behind]) > _IDLE_SECONDS:
            self._lose(behind, f"the others wait for it, and it has computed nothing for {_IDLE_SECONDS:g} s")

    def _lose(self, rank: int, why: str) -> None:
        host, process = self._peers[rank]
        if host == socket.gethostname() and _state(process) == "T":
            os.kill(process, signal.SIGKILL)  # the launcher's SIGTERM does not reach who is stopped
        self._give_up(f"rank {rank} (process {process} on {host}) stands still: {why}")

    def _give_up(self, why: str) -> None:
        _end_this_rank(why)


@contextlib.contextmanager
def ended_with_launcher() -> Iterator[None]:
    """Let this rank end with one line, inside the block, as soon as the launcher that started it is gone.

    Who is killed without notice cannot end its ranks, and a rank that still waits for the others would wait for half an
    hour. The launcher must be this process's parent.
    """
    launcher, over = os.getppid(), threading.Event()

    def look() -> None:
        while not _is_lost(launcher):
            if over.wait(1.0):
                return
        _end_this_rank("the launcher is gone")

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextlib.contextmanager
def killed_with_launcher() -> Iterator[None]:
    """Let the kernel kill this rank, inside the block, when the launcher that started it ends.

    For calls during which no thread of Python can run, that of `ended_with_launcher` neither. Linux alone can do it.
    """
    launcher = os.getppid()
    _signal_at_end_of_parent(signal.SIGKILL)
    try:
        if _is_lost(launcher):
            _end_this_rank("the launcher is gone")
        yield
    finally:
        _signal_at_end_of_parent(0)


def _signal_at_end_of_parent(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, number)


def _is_lost(launcher: int) -> bool:
    return os.getppid() != launcher or _adopts(launcher)


def _adopts(process: int) -> bool:
    """Whether a process is the system's first, which takes in those whose parent ended, and no launcher.

    In a container the first process may be the launcher itself, which is a program in Python.
    """
    return process == 1 and "python" not in _command(process)


def _command(process: int) -> str:
    """The command line of a process on this node; `python` where it cannot be known."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except OSError:
        return "python"


def _end_this_rank(why: str) -> NoReturn:
    print(f"error: {why}; --resume goes on from the last checkpoint", file=sys.stderr, flush=True)
    os._exit(LOST_RANK)


def _broke_off(error: BaseException | None) -> bool:
    """Whether an error comes from an exchange with the other ranks and not from this rank's own work."""
    return isinstance(error, RuntimeError) and _OF_EXCHANGES.search(str(error)) is not None


def _has_ended(process: int) -> bool:
    return _state(process) in "ZX"


def _state(process: int) -> str:
    """The state of a process on this node as Linux writes it, X if there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _seconds_computed() -> float:
    """Of this process and those that it started; the time itself, which always grows, where that cannot be known."""
    waiting, total = [os.getpid()], 0.0
    if not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists():
        return time.monotonic()
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            waiting += [int(child) for path in folder.glob("task/*/children") for child in path.read_text().split()]
        except OSError:  # it has just ended
            continue
    return total


def this_process() -> tuple[str, int]:
    """Return the host and the number of this process, by which the other ranks know it."""
    return socket.gethostname(), os.getpid()
