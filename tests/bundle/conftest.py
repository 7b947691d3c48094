"""One honest run and its bundle, recorded once for all workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT


def _twinalign(*arguments: str | Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "twinalign", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, the output of `twinalign run`, and `bundle.zip`, packed from it."""
    own = tmp_path_factory.getbasetemp()
    # Workers of pytest-xdist have temporary folders beside each other; the first to come records for all.
    shared = own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own
    folder, claim, failure = (shared / name for name in ("honest", "honest.claimed", "honest.failed"))
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        deadline = time.monotonic() + 300
        while not (folder / "bundle.zip").exists():
            if failure.exists() or time.monotonic() > deadline:
                pytest.fail("the worker that records has failed")
            time.sleep(0.2)
        return folder
    try:
        _twinalign("run", "tests.tiny_cases:TinyMoCo", "--set", "steps=2", "--out", folder / "run")
        _twinalign("pack", folder / "run", folder / "bundle.zip", "--partial")
    except BaseException:
        failure.touch()
        raise
    return folder


@pytest.fixture(scope="session")
def bundle(honest: Path) -> Path:
    """An honest bundle."""
    return honest / "bundle.zip"
