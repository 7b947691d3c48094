"""What constructors round to float32 is no fault; what differs in models that are built in float64 is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("table_cases.py")


@pytest.mark.parametrize(("case", "wrong"), [("Rounded", []), ("Shifted", [""]), ("RoundedBeside", ["scale"])])
def test_small_differences_are_judged_with_constants_in_float64(tmp_path: Path, case: str, wrong: list[str]) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"))
    assert found.not_searched == {}
    assert [fault.paddle_layer for fault in found.faults] == wrong


def test_a_wrong_table_is_named_with_the_line_that_makes_it(tmp_path: Path) -> None:
    (fault,) = locate(RunSettings(f"{CASES}:Masked", tmp_path / "out")).faults
    assert fault.explanation is not None
    texts = CASES.read_text(encoding="utf-8").splitlines()
    port, reference = (
        next(number for number, text in enumerate(texts, start=1) if f"mask = {side}.triu" in text)
        for side in ("paddle", "torch")
    )
    assert fault.explanation.text.endswith(
        "`mask` has other values: `paddle.triu(paddle.ones([5, 5]), "
        "diagonal=2)` in place of `torch.triu(torch.ones(5, 5), diagonal=1)`, "
        f"line {port} of table_cases.py and line {reference} of table_cases.py"
    )
    assert f"near table_cases.py:{port}: do as line {reference} of " in fault.suggestion  # the port knows no torch
    assert "inside" not in fault.evidence  # the lines that read the mask are right
