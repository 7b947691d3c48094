"""The edits of a port's component take no more than what is left of the time for causes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from twinalign.replay.construction_places import reference_code
from twinalign.replay.noted_expressions import kept_values
from twinalign.search.components import ComponentContext, Mended


def explain(worker: Any) -> dict[str, Any]:
    raise NotImplementedError


def mended(worker: Any, theirs: Any, seconds: float) -> dict[str, Any]:
    raise NotImplementedError


class Process:
    """A side that answers from a table, and keeps what it was asked for."""

    def __init__(self, left: float) -> None:
        self.left, self.asked = left, list[tuple[Any, dict[str, Any]]]()

    def call(self, function: Any, **given: Any) -> dict[str, Any]:
        self.asked.append((function, given))
        answers: dict[Any, dict[str, Any]] = {
            explain: {"explanation": None, "stopped": None, "left": self.left},
            reference_code: {"metric": []},
            kept_values: {"functions": []},
        }
        return answers.get(function, {})


@pytest.mark.parametrize(("left", "seconds"), [(0.0, []), (3.0, [3.0]), (60.0, [20.0])])
def test_they_take_what_is_left_at_most(left: float, seconds: list[float], tmp_path: Path) -> None:
    sides = {"ref": Process(left), "paddle": Process(left)}
    prepared: list[int] = []
    context = ComponentContext(sides, tmp_path, ("metric",))  # type: ignore[arg-type]
    of_port = Mended(mended, "metric", {}, prepare=lambda: prepared.append(1))
    assert context.explanation(explain, functions={}, mended=of_port) is None
    asked = [given["seconds"] for function, given in sides["paddle"].asked if function is mended]
    assert asked == pytest.approx(seconds, abs=1.0)
    assert len(prepared) == len(seconds)
