"""A session: runs of cases one after the other, in processes that import their framework once."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinalign.case.definition import Case
from twinalign.case.loading import resolve_case
from twinalign.errors import InputError, TwinalignError
from twinalign.files.recordings import read_metadata
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.run_settings import RunSettings
from twinalign.runs.options import PathLike, run_settings
from twinalign.runs.run_stages import run

if TYPE_CHECKING:
    from twinalign.runs.run_result import RunResult

_LEFT_OUT = {"__pycache__", "site-packages", "node_modules"}


class Session:
    """Runs cases in processes that stay, each run in a fresh fork of them.

    Args:
        case: of every run that names no other.
        **options: of every run, as in `twinalign.run`.
    """

    def __init__(self, case: PathLike | type[Case] | None = None, **options: Any) -> None:
        self._case, self._options = case, options
        self._kept = KeptProcesses()

    def run(self, case: PathLike | type[Case] | None = None, **options: Any) -> RunResult:
        """Record what has changed since the last run, and compare; arguments and errors are those of `twinalign.run`.

        Options given here are for this run alone. Raises InputError too if neither this nor the session has a case.
        """
        chosen = self._case if case is None else case
        if chosen is None:
            raise InputError('session.run: there is no case; give one here or to twinalign.session("case.py")')
        asked = {**self._options, **options}
        progress = asked.pop("progress", lambda side, text: None)
        return self.run_settings(run_settings(chosen, **asked), progress)

    def run_settings(self, settings: RunSettings, progress: Callable[[str, str], None]) -> RunResult:
        """The run that settings describe."""
        return run(settings, progress, kept=self._kept)

    def close(self) -> None:
        """End the processes."""
        self._kept.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def watched_runs(
    session: Session,
    settings: RunSettings,
    progress: Callable[[], contextlib.AbstractContextManager[Callable[[str, str], None]]],
) -> Iterator[RunResult | TwinalignError]:
    """Run now, and again each time a source is saved: yields each result, or the TwinalignError that ended the run.

    A source is a Python file in the folder of the case or below it, and every other file that made a recording. What is
    saved during a run begins the next one. `progress` makes what shows the progress of one run. Ctrl-C ends it.
    """
    import watchfiles

    while True:
        before = _saved(settings)
        try:
            with progress() as shown:
                result: RunResult | TwinalignError = session.run_settings(settings, shown)
        except TwinalignError as error:
            result = error
        yield result
        settings = dataclasses.replace(settings, fresh=False)  # once: later runs have something to reuse
        before |= {path: state for path, state in _saved(settings).items() if path not in before}
        folders = {path.parent for path in before if path.parent.is_dir()}
        changes = watchfiles.watch(
            *folders, recursive=False, watch_filter=None, yield_on_timeout=True, rust_timeout=1000
        )
        # Compared with the files themselves: what was saved before the watching began is seen too.
        while _saved(settings) == before:
            next(changes)
        changes.close()


def _saved(settings: RunSettings) -> dict[Path, tuple[int, int]]:
    """Every source that can be read -> when it was changed (ns), and its size (bytes)."""
    found = {}
    for path in _sources(settings):
        try:
            state = path.stat()
        except OSError:
            continue
        found[path] = state.st_mtime_ns, state.st_size
    return found


def _sources(settings: RunSettings) -> Iterator[Path]:
    case = resolve_case(settings.case).partition(":")[0]
    folder = Path(case).parent if case.endswith(".py") else Path.cwd()
    for parent, folders, files in os.walk(folder):
        out = settings.out.resolve()
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _LEFT_OUT and Path(parent, name).resolve() != out
        ]
        yield from (Path(parent, name).resolve() for name in files if name.endswith(".py"))
    for path in settings.out.glob("*.json"):
        metadata = read_metadata(path)
        yield from map(Path, {**metadata.get("code_sha256", {}), **metadata.get("data_sha256", {})})
