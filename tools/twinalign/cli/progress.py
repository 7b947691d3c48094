"""Progress of long work: a live line for each side on a terminal, plain lines elsewhere."""

import importlib.util
import sys
import threading
import time
from collections.abc import Collection
from typing import Self

from twinalign.sides import FOUND


class SideProgress:
    """Shows what each side is doing; call it with a side and a text, or with `FOUND` and a text that stays.

    What the sides in `in_passing` do is shown where it is seen only as long as it lasts, on a terminal.
    """

    def __init__(self, in_passing: Collection[str] = ()) -> None:
        self._in_passing = in_passing
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._live = None
        self._tasks: dict[str, int] = {}
        if sys.stderr.isatty() and importlib.util.find_spec("rich"):  # a reviewer may not have rich
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
        with self._lock:
            if side == FOUND and self._live is not None:
                self._live.console.print(text, soft_wrap=True, markup=False)
            elif self._live is None:
                if side not in self._in_passing:
                    print(f"[{time.monotonic() - self._started:6.1f}s] {side}: {text}", file=sys.stderr, flush=True)
            elif side in self._tasks:
                self._live.update(self._tasks[side], description=text)  # type: ignore[arg-type]
            else:
                self._tasks[side] = self._live.add_task(text, side=side, total=None)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
