"""What is wrong in helper functions that a training step calls is named by the port's lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pooled import pooled_processes
from tests.twinalign.search.training_sources import written
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

NORM, VALUE = "clip(model.parameters(), most)", "paddle.nn.utils.clip_grad_value_(model.parameters(), most)"


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    with pooled_processes():
        yield


def faults(folder: Path, replaced: dict[str, str]) -> list[Any]:
    case = written(folder, replaced)
    return locate(RunSettings(case=case, out=folder / "out", stages=("train",))).faults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"most=0.2": "most=0.17"}, ["(`0.17` in place of `0.2`, line 25"]),
        ({NORM: "clip(model.second.parameters(), most)"}, ["`clip(model.second.parameters(), most)` in place of"]),
        ({"most=0.2": "most=0.03", NORM: VALUE}, [f"`{VALUE}` in place of", "`0.03` in place of `0.2`"]),
        (
            {"max=1.0": "max=0.125"},
            ["max=0.125)` in place of `", "called by `clip(model.parameters(), most)`"],
        ),
    ],
)
def test_a_wrong_clipping_is_named(replaced: dict[str, str], words: list[str], tmp_path: Path) -> None:
    (found,) = faults(tmp_path, replaced)
    assert found.explanation is not None, found.evidence
    assert found.explanation.id == "line_of_port"
    assert all(word in found.explanation.text for word in words), found.explanation.text


@pytest.mark.slow
def test_a_right_clipping_in_other_words_is_no_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, {}) == []
