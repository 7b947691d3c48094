"""What is done with parameters that begin with zeros shows in gradients alone, and is told from a stopped gradient."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("constant_cases.py")


@pytest.mark.parametrize(
    ("case", "cause", "detail"),
    [
        ("Shift", "position_embedding_missing", ": shift"),
        ("Branch", "residual_missing", ": the second operand"),
        ("Stopped", "parameters_frozen", ": shift"),
        ("Frozen", "parameters_frozen", ": shift"),
    ],
)
def test_a_term_that_is_left_out_is_no_stopped_gradient(tmp_path: Path, case: str, cause: str, detail: str) -> None:
    faults = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out")).faults
    (found,) = [fault for fault in faults if fault.phase == "backward"]
    assert found.reference_layer == "part"
    assert found.explanation is not None
    assert found.explanation.id == cause
    assert found.explanation.text.partition("; in the port ")[0].endswith(detail)


def test_a_right_port_is_no_alarm(tmp_path: Path) -> None:
    assert locate(RunSettings(f"{CASES}:Zeros", tmp_path / "out")).faults == []
