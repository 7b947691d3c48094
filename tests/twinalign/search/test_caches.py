"""What one side alone is given or returns is no fault, nor is a mask in another form."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("cache_cases.py")


@pytest.mark.usefixtures("kept_processes")
@pytest.mark.parametrize("case", ["Cached", "MaskForEachHead"])
def test_other_forms_of_what_is_kept_or_hidden_are_no_faults(tmp_path: Path, case: str) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    assert [(fault.paddle_layer, fault.phase) for fault in found.faults] == []


@pytest.mark.usefixtures("kept_processes")
def test_a_factor_beside_a_cache_and_a_table_that_is_bound_anew_is_proven(tmp_path: Path) -> None:
    found = locate(RunSettings(f"{CASES}:CachedUnscaled", tmp_path / "out"))
    assert [(fault.paddle_layer, fault.phase) for fault in found.faults] == [("", "forward")]
    explanation = found.faults[0].explanation
    assert explanation is not None
    assert "2" in explanation.text


@pytest.mark.usefixtures("kept_processes")
def test_what_is_wrong_beside_a_mask_in_another_form_is_the_only_fault(tmp_path: Path) -> None:
    found = locate(RunSettings(f"{CASES}:MaskForEachHeadBent", tmp_path / "out"), explain=False)
    assert [(fault.paddle_layer, fault.phase) for fault in found.faults] == [("", "forward")]
    assert list(found.faults[0].evidence["values"]) == ["input.attention#0.0"]
