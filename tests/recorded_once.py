"""What takes long to record is recorded by the first worker that wants it, for all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest


def recorded_once(factory: pytest.TempPathFactory, name: str, record: Callable[[Path], object]) -> Path:
    """A folder that `record` has filled, once for all workers of pytest-xdist."""
    own = factory.getbasetemp()
    # Workers of pytest-xdist have temporary folders beside each other.
    shared = own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own
    folder, claim, done, failure = (shared / f"{name}{ending}" for ending in ("", ".claimed", ".done", ".failed"))
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        deadline = time.monotonic() + 500
        while not done.exists():
            if failure.exists() or time.monotonic() > deadline:
                pytest.fail(f"the worker that records {name} has failed")
            time.sleep(0.2)
        return folder
    try:
        folder.mkdir()
        record(folder)
    except BaseException:
        failure.touch()
        raise
    done.touch()
    return folder
