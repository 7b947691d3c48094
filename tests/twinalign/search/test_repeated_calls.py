"""One side may call a layer twice on the same values where the other uses the result of one call twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("once_cases.py")
OWN_CODE = "the model's own code"


@pytest.mark.parametrize("case", ["Once", "OnceInReference", "TakenOnce"])
def test_a_result_that_is_used_again_is_no_fault(tmp_path: Path, case: str) -> None:
    assert locate(RunSettings(f"{CASES}:{case}", tmp_path / "out")).faults == []


@pytest.mark.parametrize(
    ("case", "phase"),
    [
        ("OnceInWrong", "forward"),
        ("OnceInReferenceOfWrong", "forward"),
        ("OnceStopped", "backward"),
        ("OnceInReferenceStopped", "backward"),
    ],
)
def test_a_fault_beside_it_is_found_and_nothing_else(tmp_path: Path, case: str, phase: str) -> None:
    (fault,) = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out")).faults
    assert fault.phase == phase
    assert fault.explanation is not None
