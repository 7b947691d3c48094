"""What tests share: the command line in a process of its own, and data prepared once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import twinalign as api
from twinalign.errors import help_topics
from twinalign.runs.run_result import RunResult

# Every worker of pytest-xdist has a core of its own; frameworks read this when they are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def _prepared_data() -> None:
    """Digits and photographs are there before any test wants them."""
    from lite_data import prepare

    prepare.prepare()


KeptRun = Callable[..., RunResult]


@pytest.fixture(scope="session")
def kept_run() -> Iterator[KeptRun]:
    """`twinalign.run`, which imports each framework once for all tests of this process; each run has a fork of its own.

    Recordings are those of a plain run, byte for byte. What starts processes in its own way is tested by a plain run.
    """
    with api.session() as session:
        yield session.run


@pytest.fixture
def twinalign(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `twinalign ARGUMENTS` in an empty directory, with the tests' own modules importable."""

    def call(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        # This tree's own package, wherever the environment has one installed from.
        paths = os.pathsep.join([str(ROOT / "tools"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200", **options.pop("env", {})}
        return subprocess.run(
            [sys.executable, "-m", "twinalign", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=options.pop("cwd", tmp_path),
            env=environment,
            timeout=options.pop("timeout", 500),
            **options,
        )

    return call


def without_topic(line: str) -> str:
    """The line of an error, less the topic of `twinalign help` that it must end with (click's own end with --help)."""
    text, _, topic = line.removesuffix(")").rpartition(" (twinalign help ")
    if line.endswith(" --help"):
        return line
    assert topic in help_topics(), line
    return text


def read_summary(folder: Path) -> dict[str, Any]:
    """`summary.json` of a run."""
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))
