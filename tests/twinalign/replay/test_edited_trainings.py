"""Which edits of a training are tried first."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.aligned_code import Code, parsed
from twinalign.replay.edited_trainings import _edits
from twinalign.replay.helpers import Helpers
from twinalign.replay.statement_edits import statement_edits
from twinalign.replay.whole_functions import outermost

LOOP = """
def fit(model, record):
    average = Average(model)
    for step in range(4):
        loss = model(step)
        optimizer.step()
        average.update(model)
        record("loss", loss)
"""
INIT = "def __init__(self, model):\n    self.kept = model.weight"
UPDATE = "def update(self, model):\n    self.kept = 0.9 * model.weight + (1 - 0.9) * self.kept"


def code(source: str, name: str, side: str = "paddle", **more: object) -> Code:
    found = parsed(source.strip(), f"{side}.py", 1, name, side, **more)
    assert found is not None
    return found


@pytest.mark.parametrize(("alike", "first"), [(True, "average.update(model)"), (False, "optimizer.step()")])
def test_where_the_model_trains_alike_what_stands_beside_comes_first(alike: bool, first: str) -> None:
    ours = [
        code(LOOP, "fit", globals={"Average": ["name", "port.Average"]}),
        *(code(source, f"Average.{name}", is_plain=True) for name, source in (("__init__", INIT), ("update", UPDATE))),
    ]
    theirs = [code(LOOP, "fit", "torch")]
    whole = next(outermost(ours, theirs))
    assert isinstance(whole.helpers, Helpers)
    edits = [edit for _, edit in zip(range(12), _edits(whole, theirs, alike), strict=False)]
    assert first in edits[0].text
    made = [ast.unparse(edit.edited.tree) for edit in edits]
    if alike:
        assert any("0.9 * self.kept + (1 - 0.9) * model.weight" in one for one in made)


def test_no_function_is_tried_twice() -> None:
    made = [ast.unparse(edit.edited.tree) for edit in statement_edits(code(LOOP, "fit"))]
    assert made
    assert len(made) == len(set(made))
