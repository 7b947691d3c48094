"""The handle on the recorder processes of one side that work together, one a rank."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twinalign.errors import SideCrashError
from twinalign.recorder.process import borrowed_package, failure_of, how_it_ended, what_was_asked

_PROGRAM = Path(__file__).with_name("rank.py")
_POLL_SECONDS = 0.5


def launcher(side: str, ranks: int, device: str, log_folder: Path) -> list[str]:
    """Arguments of an interpreter that start a program as `ranks` processes on this machine, the framework's way."""
    if side == "ref":
        return ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    backend = "nccl" if device == "gpu" else "gloo"
    options = [f"--nproc_per_node={ranks}", f"--backend={backend}", f"--log_dir={log_folder}"]
    return ["-m", "paddle.distributed.launch", *options]


class RecorderGroup:
    """The processes of one side, started by `torchrun` or `paddle.distributed.launch`; as `RecorderProcess` is used.

    Args:
        side: `"ref"` or `"paddle"`.
        ranks: number of processes.
        device: `"cpu"` or `"gpu"`.
        python: interpreter that has the side's framework; twinalign need not be installed there.
        log: file that receives what launcher, framework and the user's code print.
        threads: threads that each process computes with.
        debug: show the traceback of an error in the user's code.
        progress: told what the side is doing.
    """

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
        """Start the processes, and wait until each has said which rank it is.

        Raises:
            SideCrashError: one ended before.
        """
        self.side, self.ranks, self.log, self.threads = side, ranks, log, threads
        self.alive = True
        self.raised = False
        """Whether what ended the processes was an error that the user's code raised."""
        self._progress, self._debug = progress, debug
        self._connections: dict[int, _Connection] = {}
        self._held = contextlib.ExitStack()
        environment = self._held.enter_context(borrowed_package(python))
        environment |= {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        address = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="twinalign-"))) / "socket"
        listener = self._held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(address))
        listener.listen(ranks)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [python or sys.executable, *launcher(side, ranks, device, log.with_suffix(""))]
        with log.open("wb") as output:
            self._launcher = subprocess.Popen(
                [*command, str(_PROGRAM), str(address)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends its children
            )
        try:
            self._await_ranks(listener)
        except BaseException:
            self.close()
            raise

    def _await_ranks(self, listener: socket.socket) -> None:
        listener.settimeout(_POLL_SECONDS)
        while len(self._connections) < self.ranks:
            try:
                accepted = _Connection(listener.accept()[0])
            except TimeoutError:
                if self._launcher.poll() is not None:
                    ending = how_it_ended(self._launcher, self.log)
                    where = f"the {self.side} side crashed while starting {self.ranks} ranks"
                    raise SideCrashError(f"{where} {ending} (output in {self.log})") from None
                continue
            here = accepted.first_event()
            if here is not None:
                accepted.process = here["process"]
                self._connections[here["rank"]] = accepted

    def request(self, operation: str, **values: Any) -> dict[str, Any]:
        """Send one request to every rank and wait for all; returns what rank 0 answers.

        Raises:
            InputError: the user's input is at fault; the message is the worker's.
            SideCrashError: the user's code raised, or a process died, on the rank that the message names; all are
                ended then.
        """
        return self.request_all(operation, **values)[0]

    def request_all(self, operation: str, **values: Any) -> list[dict[str, Any]]:
        """As `request`; returns the answers of all ranks."""
        if operation == "start":
            values["threads"] = self.threads
        where = functools.partial(what_was_asked, self.side, operation, values)
        answers: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for rank, connection in sorted(self._connections.items()):
                selector.register(connection.socket, selectors.EVENT_READ, rank)
                connection.send({"operation": operation, **values})
            while len(answers) < self.ranks:
                for key, _ in selector.select():
                    rank = key.data
                    for event in self._connections[rank].events():
                        if event is None:
                            self._fail_by_death(rank, where())
                        elif event["event"] == "progress" and rank == 0:
                            self._progress(self.side, event["text"])
                        elif event["event"] == "done":
                            answers[rank] = event
                        elif event["event"] == "failed":
                            self._fail(rank, where(event.get("entered", "")), event)
        return [answers[rank] for rank in range(self.ranks)]

    def _fail(self, rank: int, where: str, event: Mapping[str, Any]) -> None:
        self.raised = True
        self.close()
        raise failure_of(event, f"{where} on rank {rank} of {self.ranks}", self.log, self._debug)

    def _fail_by_death(self, rank: int, where: str) -> None:
        process = self._connections[rank].process
        self.close()
        raise SideCrashError(
            f"{where}: rank {rank} of {self.ranks} (process {process}) has ended (output in {self.log} and beside it)"
        )

    def close(self) -> None:
        """End all processes, at once."""
        self.alive = False
        if self._launcher.poll() is None:
            os.killpg(self._launcher.pid, signal.SIGKILL)
        self._launcher.wait()
        for connection in self._connections.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(connection.process, signal.SIGKILL)  # the launchers give each rank a session of its own
            connection.socket.close()
        self._connections.clear()
        self._held.close()


class _Connection:
    """What one rank sends, line by line."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.process = 0
        self._unread = b""

    def send(self, request: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # who is gone is seen by what it no longer answers
            self.socket.sendall((json.dumps(request) + "\n").encode())

    def events(self) -> list[dict[str, Any] | None]:
        """The events that have come; None at the end where nothing more will."""
        try:
            came = self.socket.recv(1 << 16)
        except OSError:
            came = b""
        lines = (self._unread + came).split(b"\n")
        self._unread = lines.pop()
        found: list[dict[str, Any] | None] = [json.loads(line) for line in lines]
        return found if came else [*found, None]

    def first_event(self) -> dict[str, Any] | None:
        """What a rank sends at once; None where it has ended instead."""
        self.socket.settimeout(None)
        while not (found := self.events()):
            pass
        return found[0]
