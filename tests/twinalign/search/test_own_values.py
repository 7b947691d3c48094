"""What both sides of a port compute in another way and take so is no fault, whatever else is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("convention_cases.py")


@pytest.mark.parametrize(
    ("case", "wrong"),
    [("Backwards", [("last", "forward")]), ("BackwardsInTableAlone", [("", "forward")])],
)
def test_a_table_that_blocks_take_as_the_port_has_it(tmp_path: Path, case: str, wrong: list[tuple[str, str]]) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    assert [(fault.paddle_layer, fault.phase) for fault in found.faults] == wrong
    assert {"first", "second", "last"} <= found.layers[case].judged
