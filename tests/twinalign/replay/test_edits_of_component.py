"""Which functions of the port an edit of a component may stand in."""

from __future__ import annotations

import sys
import types

import pytest

from twinalign.replay.aligned_code import parsed
from twinalign.replay.edits_of_component import Component


@pytest.mark.parametrize(
    ("file", "name", "is_of_layer"),
    [("case.py", "Small.train", False), ("ours.py", "Small.forward", True), ("ours.py", "Trainer.run", False)],
)
def test_a_case_that_is_called_as_its_model_is_no_layer(
    file: str, name: str, is_of_layer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("written_case")
    module.__file__ = "/somewhere/case.py"
    monkeypatch.setitem(sys.modules, "written_case", module)
    case = type("Small", (), {"__module__": "written_case"})()
    worker = types.SimpleNamespace(case=case)
    component = Component(worker, lambda: None, frozenset, [], of_layers={"Small"})
    code = parsed(f"def {name.rpartition('.')[2]}(self):\n    pass\n", file, 1, name, "paddle")
    assert code is not None
    assert component._is_of_layer(code) is is_of_layer
