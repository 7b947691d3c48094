"""What tests share: the command line in a process of its own, and data prepared once."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import twinalign as api
from tests.recorded_once import recorded_once
from twinalign.cli import main
from twinalign.errors import help_topics
from twinalign.processes.side_process import SideProcess
from twinalign.recorder import recorder
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.replay import module_containers
from twinalign.runs.run_result import RunResult

# Every worker of pytest-xdist has a core of its own; frameworks read this when they are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent
# Commands and sides use this tree's own package, wherever the environment has one installed from, and the tests' cases.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tools"), str(ROOT)])


@pytest.fixture(scope="session", autouse=True)
def _prepared_data() -> None:
    """Digits and photographs are there before any test wants them."""
    from lite_data import prepare

    prepare.prepare()


KeptRun = Callable[..., RunResult]


@pytest.fixture(scope="module", autouse=True)
def _searched() -> None:
    """Objects are found by what refers to them: those of a test that made a `Worker` in this process are frozen."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def _kept() -> Iterator[KeptProcesses]:
    with contextlib.closing(KeptProcesses(optimizers=True)) as kept:
        yield kept


@pytest.fixture(scope="session")
def kept_run(_kept: KeptProcesses) -> KeptRun:
    """`twinalign.run`, which imports each framework once for all tests of this process; each run has a fork of its own.

    Recordings are those of a plain run, byte for byte. What starts processes in its own way is tested by a plain run.
    """
    return functools.partial(_run_kept, _kept)


def _run_kept(kept: KeptProcesses, case: Any, **options: Any) -> RunResult:
    session = api.session(case, **options)
    session._kept = kept
    return session.run()


@pytest.fixture(scope="session", autouse=True)
def _tests_are_no_users_modules() -> Iterator[None]:
    """Hundreds of modules of tests have many lists and dictionaries, which no edit of a port changes."""
    with pytest.MonkeyPatch.context() as patch:
        is_installed = module_containers._installed
        patch.setattr(module_containers, "_installed", lambda name: name.startswith("tests.") or is_installed(name))
        yield


@pytest.fixture(scope="module")
def kept_processes(_kept: KeptProcesses) -> Iterator[None]:
    """What this module's tests record, locate or mend in their own process has its sides forked as in `kept_run`."""
    lend = KeptProcesses.start

    def start(side: str, **options: Any) -> SideProcess:
        return lend(_kept, side, **options) if "log" in options else SideProcess(side, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "SideProcess", start)
        patch.setattr(KeptProcesses, "start", lambda _, side, **options: start(side, **options))
        yield


@pytest.fixture
def twinalign(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `twinalign ARGUMENTS` in an empty directory, with the tests' own modules importable.

    It has a process of its own, but runs here in modules with `kept_processes`, unless it is given more than a `cwd`.
    """
    here = "kept_processes" in request.fixturenames

    def call(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        if here and options.keys() <= {"cwd"}:
            return run_here([str(argument) for argument in arguments], options.get("cwd", tmp_path))
        environment = {**os.environ, "COLUMNS": "200", **options.pop("env", {})}
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


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, the output of `twinalign run`, and `bundle.zip`, packed from it: once for all workers."""

    def record(folder: Path) -> None:
        tiny = ["run", "tests.cases.tiny:TinyMoCo", "--set", "steps=2", "--out", folder / "run"]
        for arguments in (tiny, ["pack", folder / "run", folder / "bundle.zip", "--partial"]):
            command = [sys.executable, "-m", "twinalign", *map(str, arguments)]
            finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
            assert finished.returncode == 0, finished.stdout + finished.stderr

    return recorded_once(tmp_path_factory, "honest", record)


@pytest.fixture(scope="session")
def bundle(honest: Path) -> Path:
    """An honest bundle."""
    return honest / "bundle.zip"


def run_here(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `twinalign ARGUMENTS` in this process, within a folder."""
    code = None
    out, error = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(error):
        patch.setenv("COLUMNS", "200")
        patch.chdir(folder)
        patch.setattr(sys, "path", [str(folder), str(ROOT / "tools"), str(ROOT), *sys.path])
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code
    said = [stream.buffer.getvalue().decode() for stream in (out, error)]
    return subprocess.CompletedProcess(arguments, code, *said)


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
