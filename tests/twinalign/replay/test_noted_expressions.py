"""The values of expressions in functions, noted and exchanged while they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.twinalign.replay.test_ordered_edits import module
from twinalign.replay import noted_expressions
from twinalign.replay.noted_expressions import (
    Noted,
    TooManyError,
    Visited,
    keep_run,
    kept_values,
    noted_in,
    read_values,
    values_of,
)
from twinalign.replay.running_functions import functions_of

CODE = """
import numpy as np

class Base:
    def scaled(self, x):
        return x * 2

class Sum(Base):
    def __init__(self):
        self.offset = 0.5

    def scaled(self, x):
        return super().scaled(x) + self.offset

def total(x, holder=None, *, times=2):
    made = np.zeros(3)
    made[1] = x.sum()
    made += [1.0, 2.0, 3.0][times]
    kept = [value * times for value in x if value > 0]
    text = f"{x.shape}"
    first, *rest = kept
    pick = lambda one: one - first
    while times:
        times -= 1
    return Sum().scaled(made), kept, text, pick(x[0]), rest
"""
X = np.array([0.5, -1.0, 2.0])


def visited(run: Any) -> Visited:
    return Visited(functions_of(run))


def test_what_functions_return_stays_and_each_value_is_noted() -> None:
    code = module(CODE)
    before = code.total(X)
    functions = visited(lambda: code.total(X))
    noted = noted_in(functions, lambda: np.testing.assert_equal(code.total(X), before))
    named = {functions.places[number].text: noted.places[number] for number in noted.places}

    def values(text: str) -> list[Any]:
        return [noted.table.arrays[one].tolist() for one in named[text]]

    assert values("x.sum()") == [1.5]
    assert values("made[1] = x.sum()") == [[0.0, 1.5, 0.0]]
    assert values("made += [1.0, 2.0, 3.0][times]") == [[3.0, 4.5, 3.0]]
    assert values("value > 0") == [True, False, True]
    assert values("value * times") == [1.0, 4.0]
    assert values("super().scaled(x) + self.offset") == [[6.5, 9.5, 6.5]]
    assert values("times -= 1") == [1, 0]
    assert values("one - first") == [-0.5]
    assert noted_expressions._VISIT not in vars(code)


def test_what_a_visitor_returns_takes_the_place() -> None:
    code = module(CODE)
    functions = visited(lambda: code.total(X))
    (number,) = (n for n, place in enumerate(functions.places) if place.text == "x.sum()")
    with functions.by(lambda place, value: 7.0 if place == number else value):
        assert code.total(X)[0].tolist() == [6.5, 20.5, 6.5]
    assert code.total(X)[0].tolist() == [6.5, 9.5, 6.5]


def test_equal_values_are_kept_once_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    for place in range(4):
        noted(place, X)
    assert len(noted.table.arrays) == 1
    monkeypatch.setattr(noted_expressions, "_MOST_ELEMENTS", 4)
    with pytest.raises(TooManyError):
        noted(4, X * 2)


def test_values_of_a_run_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, path = module(CODE), str(tmp_path / "values.npy")
    keep_run(lambda: code.total(X))
    written = kept_values(None, path)
    arrays, places = read_values(written["expressions"])
    (sum_of,) = (one for one in places if one["text"] == "x.sum()")
    assert [arrays[one].item() for one in sum_of["values"]] == [1.5]
    assert sum_of["line"] == CODE.strip().splitlines().index("    made[1] = x.sum()") + 1
    assert any(function["name"] == "total" and "made" in named for function, named in written["functions"])
    monkeypatch.setattr(noted_expressions, "_MOST_ELEMENTS", 4)
    assert values_of(lambda: code.total(X), path)["expressions"] is None


def test_code_that_does_not_run_once_more_shows_nothing(tmp_path: Path) -> None:
    code, runs = module(CODE), iter((True, False))

    def once() -> None:
        assert next(runs)
        code.total(X)

    found = values_of(once, str(tmp_path / "values.npy"))
    assert found["functions"]
    assert found["expressions"] is None
    assert values_of(once, str(tmp_path / "values.npy")) == {"functions": [], "expressions": None}
