"""The parent's end: a child process in which functions of this package are called."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from twinalign.errors import InputError, SideCrashError
from twinalign.processes import guardian
from twinalign.processes.machine import KEPT_BELOW
from twinalign.processes.serving import work_in
from twinalign.processes.stillness import POLL_SECONDS, Stillness

_PACKAGE = Path(__file__).resolve().parent.parent
_Function = TypeVar("_Function", bound=Callable[..., Any])


_ITSELF = "twinalign itself failed"
_UNTIL_READ_SECONDS = 5.0


class ChildError(SideCrashError):
    """A function that was called in a child raised, or the child died."""

    def __init__(
        self,
        asked: str,
        reason: str,
        *,
        died: bool,
        details: str = "",
        side: str = "",
        entered: str = "",
        place: str = "",
    ) -> None:
        super().__init__(f"{asked}{'' if died else ':'} {reason}{details}")
        self.side = side
        self.other_shape = ""
        """A sentence about the first layer that returned another shape than the reference's, if that is known."""
        self.entered = entered
        """The first function of the user's code on the way to the error; empty if there is none."""
        self.place = place
        """`file:line` of the last one, likewise."""
        self.own = asked.startswith(_ITSELF)
        """Whether twinalign's own code is at fault."""
        self.reason = reason
        """The last line of the traceback, or how the process ended."""
        self.died = died


def doing(text: str) -> Callable[[_Function], _Function]:
    """Describe what a function does, as in `the paddle side crashed while recording`; the default is `searching`."""

    def mark(function: _Function) -> _Function:
        function.doing = text  # type: ignore[attr-defined]
        return function

    return mark


def described(function: Callable[..., Any]) -> str:
    """What a function does, in the words of `doing`."""
    return str(getattr(function, "doing", "searching"))


def request_line(function: Callable[..., Any], values: Mapping[str, Any], starts: bool = False) -> str:
    """A request in the form that `serving.serve` reads; the child finds the function or class by module and name."""
    reference = f"{function.__module__}:{function.__qualname__}"
    return json.dumps({"function": reference, "starts": starts, "values": values}) + "\n"


@contextlib.contextmanager
def borrowed_package(python: str | None) -> Iterator[dict[str, str]]:
    """The environment of a child; another interpreter gets this twinalign and nothing else from here."""
    environment = dict(os.environ)
    environment.setdefault("GLOG_minloglevel", "2")
    # Threads that wait sleep instead of spinning: the two sides and other programs share the processors.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # By itself glibc returns freed memory to the system beyond twice the largest tensor, 64 MB at most: each pass
    # through a model then gets its activations as new pages, which the kernel clears. What one frees stays now;
    # `machine.give_back_memory` returns it all the same.
    for name, size in (("MALLOC_TRIM_THRESHOLD_", 512 << 20), ("MALLOC_MMAP_THRESHOLD_", KEPT_BELOW)):
        environment.setdefault(name, str(size))
    if platform.machine() in ("x86_64", "AMD64"):
        # The threads of numpy's OpenBLAS spin, and on a busy machine a small product waits a hundred times as long for
        # them as it takes. On these processors the frameworks multiply with MKL, whose threads stay as they are.
        environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    if _is_amd_with_avx2():
        # The MKL of 2019 inside paddle's wheels takes its slowest kernels on processors of another maker: a matrix
        # product takes 2.7 times as long on an AMD EPYC. It reads this variable at its first product.
        environment.setdefault("MKL_DEBUG_CPU_TYPE", "5")
    with guardian.temporary_folder() as staging:
        paths = [path for path in (os.getcwd(), environment.get("PYTHONPATH")) if path]
        if python is not None:
            for name in ("twinalign", "plain_pickles"):
                (staging / name).symlink_to(_PACKAGE.with_name(name))
            paths.insert(0, str(staging))
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        yield environment


def _is_amd_with_avx2() -> bool:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "AuthenticAMD" in text and " avx2 " in text


def how_it_ended(process: subprocess.Popen[str], log: Path) -> str:
    """`(exit code 1): last line of the log` of a child; waits for its end."""
    code = process.wait()
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if code == -signal.SIGKILL:
        how += ", often because memory ran out"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"({how}){f': {lines[-1].strip()}' if lines else ''}"


def start_child(
    side: str,
    arguments: Sequence[str],
    *,
    python: str | None,
    log: Path,
    threads: int | None,
    held: contextlib.ExitStack,
    pipes: bool,
) -> subprocess.Popen[str]:
    """Start the interpreter `python` (None: this one) with arguments, in its own session.

    Its output goes to `log`; with `pipes`, requests and events use standard input and output. Close `held` once the
    child has ended. Raises InputError if the interpreter does not start.
    """
    environment = held.enter_context(borrowed_package(python))
    if threads:
        environment |= {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            child = subprocess.Popen(
                [python or sys.executable, *arguments],
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else output,
                stderr=output,
                env=environment,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends its children
            )
        except OSError as error:
            held.close()
            raise InputError(f"--{side}-python {python}: cannot be started ({error.strerror})") from None
    guardian.guard(child.pid)
    return child


def what_was_asked(side: str, doing: str, values: Mapping[str, Any], entered: str = "") -> str:
    """`the paddle side crashed while recording loss in float64`: the beginning of a message about a failed request.

    If the case's `inputs` failed (`entered`), the message names that instead.
    """
    doing = "calling inputs() of" if entered == "inputs" else doing
    stage = f" {values['stage']}" if values.get("stage") else ""
    return f"the {side} side crashed while {doing}{stage}" + (f" in {values['dtype']}" if "dtype" in values else "")


def failure_of(event: Mapping[str, Any], asked: str, log: Path, debug: bool, side: str = "") -> InputError | ChildError:
    """The error of a child's `failed` event; the traceback goes into the log, or with `debug` into the message."""
    if event["kind"] == "input":
        return InputError(event["message"])
    details = ""
    if event.get("traceback"):
        with log.open("a", encoding="utf-8") as stream:
            stream.write(event["traceback"])
        details = f"\n{event['traceback'].rstrip()}" if debug else f" (traceback in {log}, or with --debug)"
    if own := event.get("own"):
        asked = f"{_ITSELF} ({own}): {asked}"
        details += "; whatever the case does, this should not happen: please report it with the traceback"
    users = {name: event.get(name, "") for name in ("entered", "place")}
    failure = ChildError(asked, event["message"], died=False, details=details, side=side, **users)
    if event.get("frames") and not debug:
        failure.add_note(event["frames"])
    return failure


class SideProcess:
    """A child process of one side, in which functions of this package are called.

    Args:
        python: interpreter that has the side's framework; twinalign need not be installed there.
        log: file that receives what the framework and the user's code print, None for a temporary one.
        threads: threads that the framework computes with, None for its own choice.
        debug: show the traceback of an error in the user's code.
        points: told the newest points of a training's curves: its precision, prefix, step and values.
        forks: the first call prepares the child, and all others are served by a fork of it; `again` makes another one.
    """

    def __init__(
        self,
        side: str,
        *,
        python: str | None = None,
        log: Path | None = None,
        threads: int | None = None,
        debug: bool = False,
        progress: Callable[[str, str], None] = lambda side, text: None,
        points: Callable[[str, Mapping[str, Any]], None] = lambda side, event: None,
        forks: bool = False,
    ) -> None:
        self.side = side
        self.threads = threads
        self._progress = progress
        self._points = points
        self._debug = debug
        self._held = contextlib.ExitStack()
        self.log = log or self._held.enter_context(guardian.temporary_folder()) / "log"
        arguments = ["-u", "-m", "twinalign.processes.serving", *(["--forks"] if forks else [])]
        options: dict[str, Any] = {"python": python, "threads": threads, "held": self._held, "pipes": True}
        self._begin, self._forks = functools.partial(start_child, side, arguments, **options), forks
        self._process = self._begin(log=self.log)
        self._served: tuple[Callable[..., Any], Mapping[str, Any]] | None = None
        """What makes the service, and its values."""
        self._asked: tuple[str, Mapping[str, Any]] = "starting", {}
        self._unread = bytearray()
        self._waits = False
        self._reads = threading.RLock()
        """Held while an answer is read: the number of a pipe that is closed may soon be that of another one."""
        self._closed = False
        """Another thread may still be at work with the process: what it requests after this is refused."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, service: Callable[..., Any], **values: Any) -> None:
        """Let the child make its service, the first argument of every function called from now on.

        `service` is called with `emit`, which sends events, the side, its threads, and `values`, which must be JSON.
        Its attribute `explain`, if there is one, turns an error into a message for the user, or None.

        Raises:
            InputError: the user's input is at fault.
            SideCrashError: it raised, or the process died.
        """
        self._served = service, values
        values = {"side": self.side, "threads": self.threads, **values}
        self._send("starting", values, request_line(service, values, starts=True))
        self.answer()

    def call(self, function: Callable[..., dict[str, Any]], **values: Any) -> dict[str, Any]:
        """Let the child call a function of this package with its service, if there is one, and JSON `values`.

        Raises:
            InputError: the user's input is at fault.
            SideCrashError: the function raised, or the process died.
        """
        self.send(function, **values)
        return self.answer()

    def send(self, function: Callable[..., dict[str, Any]], **values: Any) -> None:
        """Request a call without waiting for it; `answer` must follow before the next request."""
        self._send(described(function), values, request_line(function, values))

    def revive(self) -> bool:
        """Begin the process that has died once more, with its service and another log; False where it cannot be."""
        if self._forks or self._served is None or self.alive:
            return False
        self._end()
        self.log, self._unread = self.log.with_stem(f"{self.log.stem}_again"), bytearray()
        self._process = self._begin(log=self.log)
        self.start(self._served[0], **self._served[1])
        return True

    def again(self) -> None:
        """End the fork that serves requests, and begin another one; raises as `call` does."""
        self._send("starting", {}, json.dumps({"again": True}) + "\n", even_if_closed=True)
        self.answer()

    def tell(
        self,
        log: Path,
        debug: bool,
        progress: Callable[[str, str], None],
        points: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        """Let the fork work in the folder where this process is, print into another log, and tell others its progress.

        Arguments as of the class. A process that was closed in between may be used from now on.
        """
        self._closed = False
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, self._debug, self._progress, self._points = log, debug, progress, points
        self.call(work_in, folder=os.getcwd(), log=str(log.resolve()))

    @property
    def waits_for_answer(self) -> bool:
        """Whether a request was sent whose answer has not been read."""
        return self._waits

    def answer(self) -> dict[str, Any]:
        """Wait for the last requested call and return its result; raises as `call` does."""
        with self._reads:
            for line in self._lines():
                event = json.loads(line)
                kind = event.pop("event")
                if kind == "progress":
                    self._progress(self.side, event["text"])
                elif kind == "points":
                    self._points(self.side, event)
                elif kind == "done":
                    self._waits = False
                    answer: dict[str, Any] = event["answer"]
                    return answer
                else:
                    self._waits = False
                    asked = what_was_asked(self.side, *self._asked, event.get("entered", ""))
                    raise failure_of(event, asked, self.log, self._debug, self.side)
            raise self._death()

    def _lines(self) -> Iterator[bytes]:
        """Lines that the child writes, until it ends; ends it and raises ChildError if it stands still."""
        assert self._process.stdout is not None
        output, stillness = self._process.stdout.fileno(), Stillness()
        arrived = select.poll()
        arrived.register(output)
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                yield bytes(line)
            elif arrived.poll(POLL_SECONDS * 1000):
                piece = os.read(output, 1 << 20)
                if not piece:
                    return
                self._unread += piece
            elif still := stillness.look([self.pid]):
                self._kill()
                raise self._death(f"process {self.pid} stands still: {still[self.pid]}")

    def _send(self, doing: str, values: Mapping[str, Any], line: str, even_if_closed: bool = False) -> None:
        assert self._process.stdin is not None
        self._asked, self._waits = (doing, values), True
        if self._closed and not even_if_closed:
            raise ChildError(what_was_asked(self.side, doing, values) + ":", "its process was closed", died=True)
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            raise self._death() from None

    def _death(self, reason: str = "") -> ChildError:
        asked = what_was_asked(self.side, *self._asked) + (":" if reason else "")
        reason = reason or how_it_ended(self._process, self.log)
        return ChildError(asked, reason, died=True, details=f" (output in {self.log})")

    @property
    def alive(self) -> bool:
        """Whether the process accepts requests."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process, and everything it started in its session, at once."""
        self._closed = True
        self._end()
        self._held.close()

    def _kill(self) -> None:
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _end(self) -> None:
        self._kill()
        guardian.release(self.pid)
        # A thread that reads an answer sees the end of the pipe, unless a process that left the session holds it open.
        reads_no_more = self._reads.acquire(timeout=_UNTIL_READ_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            # Closing sends what an interrupted request left in the buffer, which a process that has ended cannot take.
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()
        if reads_no_more:
            self._reads.release()

    def __enter__(self) -> SideProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
