"""Results are compared by their names, in whatever order a dictionary was filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("dictionary_cases.py")


@pytest.mark.parametrize(
    ("case", "wrong", "where"),
    [
        ("OtherOrder", [], []),
        ("OtherOrderWrongLayer", [""], ["output.1"]),
        ("OtherOrderWrongLoss", ["loss"], ["output.0"]),
    ],
)
def test_a_dictionary_may_be_filled_in_another_order(
    tmp_path: Path, case: str, wrong: list[str], where: list[str]
) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    assert [fault.paddle_layer for fault in found.faults if fault.phase == "forward"] == wrong
    values = [name for fault in found.faults if fault.phase == "forward" for name in fault.evidence["values"]]
    assert values == where
