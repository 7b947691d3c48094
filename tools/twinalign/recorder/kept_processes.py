"""Processes of both sides that stay between runs: each has imported its framework, and forks for every run.

A fork has nothing of an earlier run: no module of the user, no state of a generator, no flag. Importing starts no
thread that a fork would miss: OpenMP's are made at the first computation, and OpenBLAS starts its own anew in a fork.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twinalign.conversion.remote_model import RememberedRuns
from twinalign.errors import SideCrashError
from twinalign.files.freshness import interpreter_versions
from twinalign.processes.serving import imported_for_good
from twinalign.processes.side_process import SideProcess, doing
from twinalign.sides import FRAMEWORK_OF_SIDE

_CHANGES_ALWAYS = {"COLUMNS", "LINES", "PYTEST_CURRENT_TEST"}
_Slot = tuple[str, int | None]
"""A side, and the number of threads, which a framework takes from its environment once."""


@doing("importing its framework")
def import_framework(side: str, optimizers: bool) -> dict[str, Any]:
    """Import what a recorder of this side needs, for `optimizers` too; what is missing the recorder itself tells."""
    with contextlib.suppress(ImportError), imported_for_good():
        from twinalign.backends import backend_of_side
        from twinalign.recorder import worker  # noqa: F401

        backend = backend_of_side(side)
        if optimizers:
            backend.import_for_optimizers()
    return {"framework": FRAMEWORK_OF_SIDE[side]}


class KeptProcess(SideProcess):
    """A process that goes back to its `KeptProcesses` when it is closed, unless it failed or is still at work."""

    def __init__(self, side: str, give_back: Callable[[KeptProcess], None], **options: Any) -> None:
        super().__init__(side, forks=True, **options)
        self._give_back = give_back

    def close(self) -> None:
        self._closed = True
        self._give_back(self)

    def end(self) -> None:
        """End the process for good."""
        super().close()


class KeptProcesses:
    """Lends processes to recorders; one that is asked for in the same surroundings again is still there."""

    def __init__(self, optimizers: bool = False) -> None:
        """`optimizers`: whether the processes import what optimizers need, which every fork else does for itself."""
        self._optimizers = optimizers
        self._lock = threading.Lock()
        self._idle: dict[_Slot, tuple[Any, KeptProcess]] = {}
        self._lent: dict[KeptProcess, tuple[_Slot, Any]] = {}
        self.trials: dict[tuple[str, str], RememberedRuns] = {}
        """(case, part) -> trial runs of the reference's model, which hold until its weights are made anew."""
        self.versions = functools.cache(interpreter_versions)
        """Versions of the packages that the processes have imported; asked for anew once one of them has ended."""

    def start(
        self,
        side: str,
        *,
        python: str | None,
        log: Path,
        threads: int | None,
        debug: bool,
        progress: Callable[[str, str], None],
        points: Callable[[str, Mapping[str, Any]], None],
    ) -> SideProcess:
        """A process for one run, with a log of that run; arguments as of `SideProcess`, and it raises as that does."""
        slot, surroundings = (side, threads), (python, _environment())
        with self._lock:
            known, process = self._idle.pop(slot, (None, None))
        if process is not None and (known != surroundings or not process.alive):
            self._end(process)
            process = None
        if process is None:
            process = KeptProcess(side, self._take_back, python=python, threads=threads)
            try:
                process.call(import_framework, side=side, optimizers=self._optimizers)
            except BaseException:
                process.end()
                raise
        with self._lock:
            self._lent[process] = slot, surroundings
        process.tell(log, debug, progress, points)
        return process

    def _take_back(self, process: KeptProcess) -> None:
        with self._lock:
            slot, surroundings = self._lent.pop(process, (None, None))
        if slot is None:  # closed twice
            return
        if not process.waits_for_answer and process.alive:
            with contextlib.suppress(SideCrashError):
                process.again()
                with self._lock:
                    if slot not in self._idle:
                        self._idle[slot] = surroundings, process
                        return
        self._end(process)

    def _end(self, process: KeptProcess) -> None:
        process.end()
        self.versions.cache_clear()  # the next one imports what is installed then

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            processes = [*self._lent, *(process for _, process in self._idle.values())]
            self._lent, self._idle = {}, {}
        for process in processes:
            process.end()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _CHANGES_ALWAYS}
