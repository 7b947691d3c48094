"""The speed study goes on where a row fails: what it reports of a run that ends badly, hangs, or says nothing."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def module() -> Any:
    spec = importlib.util.spec_from_file_location("speed_study", ROOT / "benchmarks" / "speed_study.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # where dataclasses look for it
    spec.loader.exec_module(found)
    yield found
    del sys.modules[spec.name]


def test_a_command_that_fails_or_hangs_is_reported(module: Any) -> None:
    python = [sys.executable, "-c"]
    assert module.finish([*python, "print(7)"], 60) == ("", "7\n")
    failure, _ = module.finish([*python, "print('wrong'); exit(5)"], 60)
    assert failure == "ended with exit code 5: wrong"
    assert module.finish([*python, "exit(1)"], 60)[0] == "ended with exit code 1: it said nothing"
    start = time.monotonic()
    assert module.finish([*python, "import time; print('up', flush=True); time.sleep(50)"], 1) == (
        "not done in 1 s",
        "up\n",
    )
    assert time.monotonic() - start < 30


@pytest.mark.slow
def test_a_row_that_fails_leaves_the_others(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (40, 40)).save(tmp_path / "one.png")
    monkeypatch.setattr(module, "PACKAGES", {"torch": "moco_ref"})
    page = module.Page(tmp_path / "page.md")
    # No architecture of that name: every run fails, and the tables are filled all the same.
    study = module.Study("nonsense", 4, 3, [tmp_path / "one.png"], (0,), (1,), ("fp32",))
    module.study_cpu(study, page)
    rows = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("| torch")]
    assert len(rows) == 2
    assert all("ended with exit code 2: " in row and "nonsense" in row for row in rows)
    # The loader alone as well.
    assert "ended with exit code 1: KeyError: 'nonsense'" in rows[0]
