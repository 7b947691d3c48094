"""What a layer returns and nothing uses is no fault beside others; what is used is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("unused_cases.py")


@pytest.mark.parametrize(("case", "wrong"), [("Passing", ["end"]), ("PassingOn", ["last", "end"])])
def test_what_nothing_uses_is_not_named(tmp_path: Path, case: str, wrong: list[str]) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    assert [fault.paddle_layer for fault in found.faults] == wrong
