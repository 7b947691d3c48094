"""Progress of long work: a live line for each side on a terminal, plain lines elsewhere."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from types import TracebackType


class SideProgress:
    """Shows what each side is doing; call it with a side and a text."""

    def __init__(self) -> None:
        """Use a live display where standard error is a terminal."""
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._live = None
        self._tasks: dict[str, int] = {}
        if sys.stderr.isatty() and importlib.util.find_spec("rich"):  # a reviewer needs none of it
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._live = Progress(
                SpinnerColumn(),
                TextColumn("{task.fields[side]:>6}"),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )

    def __call__(self, side: str, text: str) -> None:
        """Say that `side` has come to `text`."""
        with self._lock:
            if self._live is None:
                print(f"[{time.monotonic() - self._started:6.1f}s] {side}: {text}", file=sys.stderr, flush=True)
            elif side in self._tasks:
                self._live.update(self._tasks[side], description=text)  # type: ignore[arg-type]
            else:
                self._tasks[side] = self._live.add_task(text, side=side, total=None)

    def __enter__(self) -> SideProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
