"""Functions of the port that are written otherwise than the reference's are tried as wholes in their place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pooled import pooled_processes
from tests.twinalign.search.whole_cases import written
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    with pooled_processes():
        yield


def faults(folder: Path, stage: str, replaced: dict[str, str]) -> list[Any]:
    case = written(folder, replaced)
    return locate(RunSettings(case=case, out=folder / "out", stages=(stage,))).faults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "old", "new", "words"),
    [
        ("metric", "* counts).sum() / counts.sum()", ").mean()", ["`group_spread`, line", "in place of `spread_of"]),
        (
            "metric",
            "(np.array(variances) * counts).sum() / counts.sum()",
            "np.average(variances)",
            ["`np.average(variances)` in place of `np.average(variances, weights=counts)`", "in `group_spread`"],
        ),
        (
            "metric",
            "- values[labels == one].mean()",
            "- values.mean()",
            ["`np.square(values[labels == one] - values.mean()).mean()` in place of `values[labels == one].var()`"],
        ),
        (
            "metric",
            "counts.sum())",
            "counts.max())",
            ["`counts.max()` in place of `counts.sum()`", "in `group_spread`"],
        ),
        ("metric", "share=0.5", "share=1.0", ["`1.0` in place of `0.5`", "in `size_of`"]),
        (
            "data",
            "(0, most - len(row))",
            "(most - len(row), 0)",
            ["`(most - len(row), 0)` in place of `(0, most - len(row))`", "line 16"],
        ),
        ("data", "LONGEST = 5", "LONGEST = 3", ["`LONGEST` in place of `5`, line 14"]),
    ],
)
def test_a_wrong_function_is_named(stage: str, old: str, new: str, words: list[str], tmp_path: Path) -> None:
    found = faults(tmp_path, stage, {old: new})
    assert found
    for one in found:
        assert one.explanation is not None, one.evidence
        assert one.explanation.id == "line_of_port"
        assert all(word in one.explanation.text for word in words), one.explanation.text
        assert "evaluate" not in one.explanation.text


def test_the_right_code_may_call_what_the_wrong_code_never_does(tmp_path: Path) -> None:
    calling = """    short = most > len(row)
    return (padded if short else np.resize)(row[:most], most).astype("float32")


def padded(row, most):
    return np.pad(row, (0, most - len(row)))
"""
    right = {
        "    row = row[:most]\n": "",
        '    return np.pad(row, (0, most - len(row))).astype("float32")\n': calling,
    }
    found = faults(tmp_path, "data", {**right, "most > len(row)": "len(row) > most"})
    assert found
    for one in found:
        assert one.explanation is not None, one.evidence
        assert "`len(row) > most` in place of `len(row) < most`, line 15" in one.explanation.text


@pytest.mark.parametrize("stage", ["metric", "data"])
def test_right_functions_in_other_words_are_no_fault(stage: str, tmp_path: Path) -> None:
    assert faults(tmp_path, stage, {}) == []
