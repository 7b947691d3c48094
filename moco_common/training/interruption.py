"""Ends a run between two steps on SIGINT or SIGTERM, so that its complete state can be saved."""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(Exception):
    """A run ended by a signal after its state was saved; the message is one line that says how to go on.

    Attributes:
        exit_code: what shells expect of a program that a signal ended, 128 and its number.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StopRequest:
    """Context in which the first SIGINT or SIGTERM is only recorded; a second one ends the program at once.

    Attributes:
        signal: the signal that came, or None.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        # Only the main thread may set handlers in Python; elsewhere signals keep their usual effect.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def share(self, gather: Callable[[list[float]], list[list[float]]]) -> None:
        """Tell all ranks of a signal that one received, so that all end after the same step."""
        numbers = (int(number) for (number,) in gather([float(self.signal or 0)]))
        self.signal = next((signal.Signals(number) for number in numbers if number), None)

    def raise_after(self, save: Callable[[], Any]) -> None:
        """If a signal has come, save the state and end the run.

        Raises:
            StoppedError: a signal has come; what `save` returns is the file to go on from.
        """
        if self.signal is not None:
            path = save()
            raise StoppedError(f"{self.signal.name}: stopped; go on with --resume {path}", 128 + self.signal)


def set_up_worker(worker: int) -> None:
    """Set up a loader's worker process, so that it neither ends before its parent nor outlives it.

    Ctrl-C reaches the workers too, and must not stop the next batch. SIGTERM keeps the framework's handler in a worker,
    since loaders end workers with it. A parent that is killed cannot end its workers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # paddle's own check of the parent never runs: its worker waits for the next batch without a limit.
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.pid,), daemon=True).start()
    # A second signal may end the parent while it receives a batch; the worker need not report that.
    sys.excepthook = _tell
    setattr(multiprocessing.queues.Queue, "_on_queue_feeder_error", staticmethod(_tell_of_queue))  # noqa: B010


def _end_with(parent: int) -> None:
    """End this process as soon as its parent's number changes: the parent is gone."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error of one of the worker's threads, unless it is a broken pipe to the parent."""
    if not isinstance(error, (ConnectionError, EOFError)):
        sys.__excepthook__(kind, error, trace)


def _tell_of_queue(error: Exception, item: Any) -> None:
    _tell(type(error), error, error.__traceback__)
