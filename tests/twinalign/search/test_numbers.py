"""A wrong number is told as the port has it, in place of the reference's."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("number_cases.py")


@pytest.mark.parametrize(("case", "port"), [("Halved", " * 0.5` "), ("Scaled", "scale=0.5)` ")])
def test_both_numbers_are_told_in_their_order(case: str, port: str, tmp_path: Path) -> None:
    (fault,) = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out")).faults
    assert fault.explanation is not None
    before, between, behind = fault.explanation.text.partition("in place of")
    assert between
    assert port in before
    assert "math.sqrt(0.5)" in behind
    assert "0.707" not in fault.explanation.text
