"""Settings of parameter groups that differ in a training are read off its curves and named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pooled import pooled_processes
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASE = f"{Path(__file__).parent / 'group_cases.py'}:Grouped"


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    with pooled_processes():
        yield


def faults(tmp_path: Path, **options: Any) -> list[Any]:
    return locate(RunSettings(case=CASE, out=tmp_path, stages=("train",), options=options)).faults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "cause", "words"),
    [
        ({"fault": "half"}, "learning_rate_of_some", "0.002 in place of 0.001 for 0.weight, 0.bias, 1.weight"),
        ({"fault": "layer"}, "learning_rate_of_some", "0.01 in place of 0.001 for 2.weight, 2.bias)"),
        ({"fault": "one"}, "group_rate_ignored", "(and all are decayed with 0.05)"),
        ({"fault": "one", "decayed": "false"}, "group_rate_ignored", "all parameters use the optimizer's rate"),
        ({"fault": "norm"}, "decay_on_other_parameters", "1.weight with 0.05"),
        ({"fault": "bias"}, "decay_on_bias", "with 0.05"),
    ],
)
def test_other_settings_of_groups_are_named(options: dict[str, str], cause: str, words: str, tmp_path: Path) -> None:
    (found,) = faults(tmp_path, **options)
    assert found.explanation is not None, found.evidence
    assert found.explanation.id == cause
    assert words in found.explanation.text


@pytest.mark.parametrize("fault", ["", "order"])
def test_groups_in_another_order_are_no_fault(fault: str, tmp_path: Path) -> None:
    assert faults(tmp_path, fault=fault) == []
