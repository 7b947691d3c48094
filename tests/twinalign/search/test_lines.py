"""The one wrong line of a port is named, wherever it stands."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.twinalign.search import line_cases
from twinalign.edits.suggestions import suggestion
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(line_cases.__file__)


@pytest.mark.parametrize(
    ("case", "phase", "text", "said"),
    [
        ("OwnBackward", "backward", "factor = 0.5 / x.shape[0]", "`x.shape[0]` in place of `x.shape[0] * x.shape[1]`"),
        ("EpsilonBesideTheRoot", "forward", "return x / (paddle.sqrt", "+ self.eps)` in place of `x * torch.rsqrt("),
        ("HiddenForCell", "forward", "h, (c, _) = ", "`(h, (c, _))` in place of `(h, c)`"),
        (
            "Slopes",
            "forward",
            "self.slopes = ",
            "`slopes` has other values: `self.slopes = paddle.to_tensor([2.0 ** (-8 * i ",
        ),
    ],
)
def test_the_line_is_named(tmp_path: Path, case: str, phase: str, text: str, said: str) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"))
    assert found.not_searched == {}
    (fault,) = found.faults
    assert (fault.paddle_layer, fault.phase) == ("1", phase)
    assert fault.explanation is not None, fault.evidence
    line = 1 + [text in one for one in inspect.getsource(line_cases).splitlines()].index(True)
    assert fault.explanation.id == "line_of_port"
    assert said in fault.explanation.text
    assert f"line {line} of line_cases.py and line " in fault.explanation.text
    assert f"near line_cases.py:{line}: " in suggestion(fault.to_json())
