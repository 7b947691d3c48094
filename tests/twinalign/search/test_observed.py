"""What is wrong in code that only `Case.observe` reaches is named, where the layers and the forward pass are right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pooled import pooled_processes
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASE = f"{Path(__file__).parent / 'observed_cases.py'}:Observed"


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    with pooled_processes():
        yield


def faults(tmp_path: Path, **options: Any) -> list[Any]:
    found = locate(RunSettings(case=CASE, out=tmp_path, options=options))
    assert not found.not_searched
    return found.faults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "name", "words"),
    [
        ({"fault": "step"}, "recurrent", "`0.9 * (state + self.inner(x))` in place of `0.9 * state + self.inner(x)`"),
        ({"fault": "decode", "once": "true"}, "decoded", "`0.8` in place of `0.7`"),
        ({"fault": "order"}, "recurrent", "stands behind `found.append(self.outer(state))`"),
    ],
)
def test_what_only_observe_reaches_is_named(options: dict[str, str], name: str, words: str, tmp_path: Path) -> None:
    (found,) = faults(tmp_path, **options)
    assert (found.paddle_layer, found.phase) == ("", "forward")
    assert found.evidence["where"] == f"{name}, which observe returns"
    assert found.explanation.id == "line_of_port"
    assert words in found.explanation.text
    draws = ["0"] if "once" in options else ["0", "1"]
    assert list(found.evidence["values"]) == [f"{draw}.{name}" for draw in draws]
    assert all(one["relative"] > 1e-3 for one in found.evidence["values"].values())


def test_a_right_port_has_no_fault(tmp_path: Path) -> None:
    assert faults(tmp_path) == []


def test_a_wrong_forward_pass_is_not_told_twice(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, fault="layer")
    assert "which observe returns" not in found.evidence.get("where", "")
