"""What constructors round to float32 is no fault; what differs in models that are built in float64 is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("table_cases.py")


@pytest.mark.parametrize(("case", "wrong"), [("Rounded", []), ("Shifted", [""])])
def test_small_differences_are_judged_with_constants_in_float64(tmp_path: Path, case: str, wrong: list[str]) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"))
    assert found.not_searched == {}
    assert [fault.paddle_layer for fault in found.faults] == wrong
