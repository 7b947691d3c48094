"""Recorder processes that outlive their run, so that many short runs import each framework once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from twinalign.processes.side_process import SideProcess
from twinalign.recorder import recorder as runner


class _Pooled(SideProcess):
    """The process of a side, the same for every run; each run starts its worker anew."""

    pool: ClassVar[dict[str, SideProcess]] = {}

    def __new__(cls, side: str, **options: Any) -> Any:
        known = cls.pool.get(side)
        if known is None or not known.alive:
            known = cls.pool[side] = super().__new__(cls)
            SideProcess.__init__(known, side, **options)
        return known

    def __init__(self, side: str, **options: Any) -> None:
        self.threads = options["threads"]
        self._points = options["points"]

    def close(self) -> None:
        """Not now."""


@contextlib.contextmanager
def pooled_processes() -> Iterator[None]:
    """Inside the block runs share one process a side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "SideProcess", _Pooled)
        yield
        for process in _Pooled.pool.values():
            SideProcess.close(process)
        _Pooled.pool.clear()
