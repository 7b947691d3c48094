"""The wrong line inside of a port's own function that stands for one of torch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of, in_paddle, written
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
    ("case", "before", "after", "code", "caller"),
    [
        # What the loss calls once is written out in it, so that no line calls it.
        ("OfLoss", "apart * apart / beta", "0.5 * (apart * apart / beta)", "paddle.where(", ""),
        ("OfModel", "0.44715 * x ** 3", "0.044715 * x ** 3", "0.44715", "; called by `"),
    ],
)
def test_the_line_inside_is_named_with_what_it_must_be(
    case: str, before: str, after: str, code: str, caller: str, tmp_path: Path
) -> None:
    fault, line = found(case, tmp_path), line_with(code)
    assert fault.explanation is not None
    said = f"`{before}` in place of `{after}`, line {line} of helper_cases.py{caller}"
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
    assert "`0.44715 * x ** 3` in place of `0.044715 * x ** 3`" in texts.pop()


SHUFFLING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 1)
        self.mix = nn.ChannelShuffle(2)
        self.last = nn.Conv2d(6, 4, 1)

    def forward(self, x):
        x = self.first(x)
        x = self.mix(x)
        return self.last(x)
"""
SHUFFLE = """
def mix(x):
    b, c, h, w = x.shape
    x = x.reshape([b, 2, c // 2, h, w])
    x = x.transpose([0, 2, 1, 3, 4])
    return x.reshape([b, c, h, w])

"""


def test_items_of_a_list_inside_that_stand_in_each_others_place_are_named(tmp_path: Path) -> None:
    old, new = "[b, 2, c // 2, h, w]", "[b, c // 2, 2, h, w]"
    port = edited(in_paddle(SHUFFLING), [("        self.mix = nn.ChannelShuffle(2)\n", ""), ("self.mix(x)", "mix(x)")])
    inputs = '{"x": rng.standard_normal((2, 3, 4, 4)).astype("float32")}'
    (fault,) = faults_of(written(tmp_path, SHUFFLING, port, inputs, helpers=SHUFFLE.replace(old, new)))
    assert fault.explanation is not None
    assert f"`{new}` in place of `{old}`, line" in fault.explanation.text
    assert "; called by `mix(x)` in place of `self.mix(x)`" in fault.explanation.text
    assert f"write `{old}` in place of `{new}`" in fault.suggestion
    assert faults_of(written(tmp_path, SHUFFLING, port, inputs, helpers=SHUFFLE)) == []
