"""The wrong line inside of a port's own function that stands for one of torch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.faults import Fault
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("helper_cases.py")


def found(case: str, folder: Path) -> Fault:
    (fault,) = locate(RunSettings(f"{CASES}:{case}", folder / "out")).faults
    assert fault.explanation is not None
    return fault


def line_with(text: str) -> int:
    return next(n for n, line in enumerate(CASES.read_text(encoding="utf-8").splitlines(), start=1) if text in line)


@pytest.mark.parametrize(
    ("case", "before", "after", "code"),
    [
        ("OfLoss", "apart * apart / beta", "0.5 * (apart * apart / beta)", "paddle.where("),
        ("OfModel", "0.44715", "0.044715", "0.44715"),
    ],
)
def test_the_line_inside_is_named_with_what_it_must_be(
    case: str, before: str, after: str, code: str, tmp_path: Path
) -> None:
    fault, line = found(case, tmp_path), line_with(code)
    assert fault.explanation is not None
    said = f"`{before}` in place of `{after}`, line {line} of helper_cases.py; called by `"
    assert said in fault.explanation.text
    assert fault.explanation.evidence["lines_of_port"][0][1] == line
    assert fault.suggestion.endswith(f"near helper_cases.py:{line}: write `{after}` in place of `{before}`")
    # What the function computes on its way is right, and torch's has no such values.
    inside = fault.evidence.get("inside")
    assert inside is None or inside["unknown"]["line"] == line


def test_what_no_edit_mends_is_named_as_a_whole(tmp_path: Path) -> None:
    fault = found("Hopeless", tmp_path)
    assert fault.explanation is not None
    assert "called by" not in fault.explanation.text


def test_layers_of_one_code_are_told_in_the_same_words(tmp_path: Path) -> None:
    faults = locate(RunSettings(f"{CASES}:OfBlocks", tmp_path / "out")).faults
    assert [fault.paddle_layer for fault in faults] == ["0", "1"]
    texts = {fault.explanation.text for fault in faults if fault.explanation}
    assert len(texts) == 1
    assert "`0.44715` in place of `0.044715`" in texts.pop()
