"""The handle on a recorder process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from twinalign.errors import InputError, SideCrashError

_PACKAGE = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def borrowed_package(python: str | None) -> Iterator[dict[str, str]]:
    """The environment for a child: a foreign interpreter is lent this twinalign, and nothing else from here."""
    environment = dict(os.environ)
    environment.setdefault("GLOG_minloglevel", "2")
    if _is_amd_with_avx2():
        # The MKL of 2019 inside paddle's wheels takes its slowest kernels on processors of another maker: a matrix
        # product takes 2.7 times as long on an AMD EPYC. It reads this variable at its first product.
        environment.setdefault("MKL_DEBUG_CPU_TYPE", "5")
    own_path = [path for path in [environment.get("PYTHONPATH")] if path]
    with tempfile.TemporaryDirectory(prefix="twinalign-") as staging:
        paths = [os.getcwd(), *own_path]
        if python is not None:
            (Path(staging) / "twinalign").symlink_to(_PACKAGE)
            paths.insert(0, staging)
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        yield environment


def _is_amd_with_avx2() -> bool:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "AuthenticAMD" in text and " avx2 " in text


def how_it_ended(process: subprocess.Popen[str], log: Path) -> str:
    """`(exit code 1): last line of the log` of a child that is dead or about to be; waits for it."""
    code = process.wait()
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if code == -signal.SIGKILL:
        how += ", often for want of memory"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"({how}){f': {lines[-1].strip()}' if lines else ''}"


def end_at_once(process: subprocess.Popen[str]) -> None:
    """Kill a child, and what it started in its session, where it still runs, and close its pipes."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def what_was_asked(side: str, operation: str, values: Mapping[str, Any], entered: str = "") -> str:
    """`the paddle side crashed while recording loss in float64`: how a message about a failed request begins.

    The case's `inputs`, where that is what was `entered`, is named in the place of what it was called for.
    """
    stage = values.get("stage")
    doing = {
        "record": "recording",
        "call": "searching",
        "initialise": "building the model of",
        "start": "starting",
    }.get(operation, operation)
    doing = "calling inputs() of" if entered == "inputs" else doing
    detail = f" {doing} {stage}" if stage else f" {doing}"
    return f"the {side} side crashed while{detail}" + (f" in {values['dtype']}" if "dtype" in values else "")


def failure_of(event: Mapping[str, Any], where: str, log: Path, debug: bool) -> InputError | SideCrashError:
    """The error that a child's event `failed` stands for; the traceback goes into the log, or with `debug` is shown."""
    if event["kind"] == "input":
        return InputError(event["message"])
    message = f"{where}: {event['message']}"
    if event.get("traceback"):
        with log.open("a", encoding="utf-8") as stream:
            stream.write(event["traceback"])
        message += f"\n{event['traceback'].rstrip()}" if debug else f" (traceback in {log}, or with --debug)"
    failure = SideCrashError(message)
    if event.get("frames") and not debug:
        failure.add_note(event["frames"])
    return failure


class RecorderProcess:
    """A child process that records one side.

    Args:
        side: `"ref"` or `"paddle"`.
        python: interpreter that has the side's framework; twinalign need not be installed there.
        log: file that receives what the framework and the user's code print.
        threads: threads that the framework computes with, None for its own choice.
        debug: show the traceback of an error in the user's code.
        progress: told what the side is doing.
        points: told the newest points of a training's curves: its precision, prefix, step and values.
    """

    def __init__(
        self,
        side: str,
        *,
        python: str | None,
        log: Path,
        threads: int | None = None,
        debug: bool = False,
        progress: Callable[[str, str], None] = lambda side, text: None,
        points: Callable[[str, Mapping[str, Any]], None] = lambda side, event: None,
    ) -> None:
        """Start the process; the framework is imported by the first request, `start`."""
        self.side = side
        self.log = log
        self.threads = threads
        self._progress = progress
        self._points = points
        self._debug = debug
        self._borrowed = contextlib.ExitStack()
        environment = self._borrowed.enter_context(borrowed_package(python))
        if threads:
            environment |= {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            try:
                self._process = subprocess.Popen(
                    [python or sys.executable, "-u", "-m", "twinalign.recorder.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment,
                    text=True,
                    start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends its children
                )
            except OSError as error:
                raise InputError(f"--{side}-python {python}: cannot be started ({error.strerror})") from None

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def request(self, operation: str, **values: Any) -> dict[str, Any]:
        """Send one request and wait for its result.

        Raises:
            InputError: the user's input is at fault; the message is the worker's.
            SideCrashError: the user's code raised, or the process died.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if operation == "start":
            values["threads"] = self.threads
        try:
            self._process.stdin.write(json.dumps({"operation": operation, **values}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._death(operation, values) from None
        for line in self._process.stdout:
            event = json.loads(line)
            kind = event.pop("event")
            if kind == "progress":
                self._progress(self.side, event["text"])
            elif kind == "points":
                self._points(self.side, event)
            elif kind == "done":
                return event
            else:
                where = what_was_asked(self.side, operation, values, event.get("entered", ""))
                raise failure_of(event, where, self.log, self._debug)
        raise self._death(operation, values)

    @property
    def alive(self) -> bool:
        """Whether the process takes further requests."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process, at once."""
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._borrowed.close()

    def __enter__(self) -> RecorderProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _death(self, operation: str, values: Mapping[str, Any]) -> SideCrashError:
        ending = how_it_ended(self._process, self.log)
        return SideCrashError(f"{what_was_asked(self.side, operation, values)} {ending} (output in {self.log})")
