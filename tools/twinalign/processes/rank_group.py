"""The parent's end of one side's child processes that work together, one per rank."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from twinalign.processes import guardian
from twinalign.processes.side_process import (
    ChildError,
    described,
    failure_of,
    how_it_ended,
    request_line,
    start_child,
    what_was_asked,
)
from twinalign.processes.stillness import POLL_SECONDS, Stillness

_PROGRAM = Path(__file__).with_name("rank_program.py")


def launcher(side: str, ranks: int, device: str, log_folder: Path) -> list[str]:
    """Interpreter arguments that start a program as `ranks` processes on this machine with the framework's launcher."""
    if side == "ref":
        return ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    backend = "nccl" if device == "gpu" else "gloo"
    options = [f"--nproc_per_node={ranks}", f"--backend={backend}", f"--log_dir={log_folder}"]
    return ["-m", "paddle.distributed.launch", *options]


class RankGroup:
    """The processes of one side, started by `torchrun` or `paddle.distributed.launch`; used as `SideProcess` is."""

    def __init__(
        self,
        side: str,
        ranks: int,
        *,
        device: str,
        python: str | None,
        log: Path,
        threads: int,
        debug: bool = False,
        progress: Callable[[str, str], None] = lambda side, text: None,
    ) -> None:
        """Start the processes, and wait until each has reported its rank; SideCrashError if one ends before that."""
        self.side, self.ranks, self.log, self.threads = side, ranks, log, threads
        self.alive = True
        self.raised = False
        """Whether what ended the processes was an error that the user's code raised."""
        self._progress, self._debug = progress, debug
        self._connections: dict[int, _Connection] = {}
        self._held = contextlib.ExitStack()
        self._folder = self._held.enter_context(guardian.temporary_folder())
        address = self._folder / "socket"
        listener = self._held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(address))
        listener.listen(ranks)
        self._launcher = start_child(
            side,
            [*launcher(side, ranks, device, log.with_suffix("")), str(_PROGRAM), str(address)],
            python=python,
            log=log,
            threads=threads,
            held=self._held,
            pipes=False,
        )
        try:
            self._await_ranks(listener)
        except BaseException:
            self.close()
            raise

    def _await_ranks(self, listener: socket.socket) -> None:
        listener.settimeout(POLL_SECONDS)
        stillness = Stillness()
        while len(self._connections) < self.ranks:
            try:
                accepted = _Connection(listener.accept()[0])
            except TimeoutError:
                if self._launcher.poll() is not None:
                    asked = f"the {self.side} side crashed while starting {self.ranks} ranks"
                    reason = how_it_ended(self._launcher, self.log)
                    raise ChildError(asked, reason, died=True, details=f" (output in {self.log})") from None
                if still := stillness.look([self._launcher.pid]):
                    asked = f"the {self.side} side crashed while starting {self.ranks} ranks:"
                    raise ChildError(asked, f"they stand still: {still[self._launcher.pid]}", died=True) from None
                continue
            here = accepted.first_event()
            if here is not None:
                accepted.process = here["process"]
                guardian.guard(accepted.process)  # the launchers give each rank a session of its own
                self._connections[here["rank"]] = accepted

    def start(self, service: Callable[..., Any], **values: Any) -> None:
        """Let every rank make its service, as `SideProcess.start` does."""
        values = {"side": self.side, "threads": self.threads, **values}
        self._ask("starting", values, request_line(service, values, starts=True))

    def call(self, function: Callable[..., dict[str, Any]], **values: Any) -> list[dict[str, Any]]:
        """Let every rank call a function, as `SideProcess.call` does; returns the answers of all ranks.

        Raises:
            InputError: the user's input is at fault; the message is the rank's.
            SideCrashError: the user's code raised, or a process died, on the rank in the message; all ranks are ended.
        """
        return self._ask(described(function), values, request_line(function, values))

    def _ask(self, doing: str, values: Mapping[str, Any], line: str) -> list[dict[str, Any]]:
        where = functools.partial(what_was_asked, self.side, doing, values)
        answers: dict[int, dict[str, Any]] = {}
        stillness = Stillness()
        with selectors.DefaultSelector() as selector:
            for rank, connection in sorted(self._connections.items()):
                selector.register(connection.socket, selectors.EVENT_READ, rank)
                connection.send(line)
            while len(answers) < self.ranks:
                arrived = selector.select(POLL_SECONDS)
                if not arrived:
                    self._require_work(stillness, answers, where())
                for key, _ in arrived:
                    rank = key.data
                    for event in self._connections[rank].events():
                        if event is None:
                            self._fail_by_death(rank, where())
                        elif event["event"] == "progress" and rank == 0:
                            self._progress(self.side, event["text"])
                        elif event["event"] == "done":
                            answers[rank] = event["answer"]
                        elif event["event"] == "failed":
                            self._fail(rank, where(event.get("entered", "")), event)
        return [answers[rank] for rank in range(self.ranks)]

    def _require_work(self, stillness: Stillness, answered: Collection[int], where: str) -> None:
        """End the group if one of its processes is stopped, or all that have not answered yet stand still."""
        ranks = {
            connection.process: rank for rank, connection in sorted(self._connections.items()) if rank not in answered
        }
        still = stillness.look(ranks)
        stopped = [process for process, what in still.items() if "stopped" in what]
        if not stopped and len(still) < len(ranks):
            return
        named = stopped or self._outside_of_exchanges(still)
        who = " and ".join(f"rank {ranks[process]} of {self.ranks} (process {process})" for process in named)
        stands = "stands" if len(named) == 1 else "stand"
        self.close()
        raise ChildError(f"{where}:", f"{who} {stands} still: {still[named[0]]} (output in {self.log})", died=True)

    def _outside_of_exchanges(self, still: Iterable[int]) -> list[int]:
        """Of processes that stand still, those that do not wait for another rank; all if nothing tells them apart."""
        for process in still:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGUSR1)  # which lets it write where it stands
        time.sleep(1.0)
        stacks = {process: self._folder / f"stack.{process}" for process in still}
        outside = [
            process for process, path in stacks.items() if path.exists() and "/distributed/" not in path.read_text()
        ]
        return outside or list(stacks)

    def _fail(self, rank: int, where: str, event: Mapping[str, Any]) -> None:
        self.raised = True
        self.close()
        raise failure_of(event, f"{where} on rank {rank} of {self.ranks}", self.log, self._debug)

    def _fail_by_death(self, rank: int, where: str) -> None:
        process = self._connections[rank].process
        self.close()
        reason = f"rank {rank} of {self.ranks} (process {process}) has ended (output in {self.log} and beside it)"
        raise ChildError(f"{where}:", reason, died=True)

    def close(self) -> None:
        self.alive = False
        if self._launcher.poll() is None:
            os.killpg(self._launcher.pid, signal.SIGKILL)
        self._launcher.wait()
        guardian.release(self._launcher.pid)
        # The other side's failure may close this group at the same time, from another thread.
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(connection.process, signal.SIGKILL)
            guardian.release(connection.process)
            connection.socket.close()
        self._held.close()


class _Connection:
    """The line-by-line connection to one rank."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.process = 0
        self._unread = b""

    def send(self, line: str) -> None:
        with contextlib.suppress(OSError):  # who is gone is seen by what it no longer answers
            self.socket.sendall(line.encode())

    def events(self) -> list[dict[str, Any] | None]:
        """The events received so far; a final None if there will be no more."""
        try:
            came = self.socket.recv(1 << 16)
        except OSError:
            came = b""
        lines = (self._unread + came).split(b"\n")
        self._unread = lines.pop()
        found: list[dict[str, Any] | None] = [json.loads(line) for line in lines]
        return found if came else [*found, None]

    def first_event(self) -> dict[str, Any] | None:
        """The first event of a rank; None if the rank ended before sending one."""
        self.socket.settimeout(None)
        while not (found := self.events()):
            pass
        return found[0]
