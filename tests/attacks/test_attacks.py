"""The attacks in small; by hand they are run with many files and moments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.attacks import mutate_files
from tests.conftest import ROOT


def attack(program: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), str(ROOT)])}
    path = str(Path(__file__).with_name(program))
    finished = subprocess.run([sys.executable, path, *arguments], capture_output=True, text=True, env=environment)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.slow
def test_changed_files_are_refused_or_read_right() -> None:
    attack("mutate_files.py", "--files", "400")


@pytest.mark.slow
def test_a_conversion_that_is_killed_leaves_nothing() -> None:
    attack("kill_runs.py", "--moments", "2", "convert")


@pytest.mark.slow
def test_a_hostile_bundle_is_refused_in_one_line_and_soon(bundle: Path) -> None:
    attack("hostile_costs.py", str(bundle))


@pytest.mark.slow
def test_a_replay_shows_what_one_bundle_cannot(compact: Path) -> None:
    attack("replayed.py", str(compact))


def test_wrong_values_would_be_found() -> None:
    right = {"a": np.arange(3.0)}
    assert mutate_files.same({"a": np.arange(3.0)}, right)
    assert not mutate_files.same({"a": np.array([0.0, 1.0, 3.0])}, right)
    assert not mutate_files.same({"b": np.arange(3.0)}, right)
    assert not mutate_files.same({"a": np.arange(3.0).reshape(1, 3)}, right)
