"""Recorder processes that outlive their run, so that many short runs import each framework once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from twinalign import runner
from twinalign.recorder.process import RecorderProcess


class _Pooled(RecorderProcess):
    """The process of a side, the same for every run; each run starts its worker anew."""

    pool: ClassVar[dict[str, RecorderProcess]] = {}

    def __new__(cls, side: str, **options: Any) -> Any:
        known = cls.pool.get(side)
        if known is None or not known.alive:
            known = cls.pool[side] = super().__new__(cls)
            RecorderProcess.__init__(known, side, **options)
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
        patch.setattr(runner, "RecorderProcess", _Pooled)
        yield
        for process in _Pooled.pool.values():
            RecorderProcess.close(process)
        _Pooled.pool.clear()
