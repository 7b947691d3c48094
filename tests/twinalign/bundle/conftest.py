"""One honest run and its bundle, recorded once for all workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.recorded_once import recorded_once


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

    def record(folder: Path) -> None:
        _twinalign("run", "tests.cases.tiny:TinyMoCo", "--set", "steps=2", "--out", folder / "run")
        _twinalign("pack", folder / "run", folder / "bundle.zip", "--partial")

    return recorded_once(tmp_path_factory, "honest", record)


@pytest.fixture(scope="session")
def bundle(honest: Path) -> Path:
    """An honest bundle."""
    return honest / "bundle.zip"
