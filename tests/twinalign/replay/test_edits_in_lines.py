"""How an edit inside of lines is told."""

from __future__ import annotations

import ast
import types
from typing import Any

from tests.twinalign.replay.test_ordered_edits import module
from twinalign.replay.edits_in_lines import told_inside
from twinalign.replay.helper_edits import HelperEdit
from twinalign.replay.running_functions import functions_of

PORT = """
class Filter:
    def __init__(self):
        self.std_pos, self.gain = 2.0, 3.0

    def noise(self, x):
        return self.std_pos * x
"""


def told_with(new: str) -> str:
    port = module(PORT, "filter_port")
    (code,) = [one for one in functions_of(lambda: port.Filter().noise(1.0), "paddle") if one.name == "Filter.noise"]
    old: Any = code.tree.body[0].value  # type: ignore[attr-defined]
    edit = HelperEdit(code, old, ast.copy_location(ast.parse(new, mode="eval").body, old))
    lines: Any = types.SimpleNamespace(detail="the line", lines=(), edit=None, is_whole=False)
    told = told_inside("why (the line)", {"lines_of_port": []}, lines, lambda variant, draw: {}, edit)
    assert told is not None
    return str(told[1]["helper_edit"]["after"])


def test_attributes_of_the_reference_are_told_as_the_port_calls_them() -> None:
    assert told_with("(self._std_pos * x) ** 2") == "(self.std_pos * x) ** 2"


def test_attributes_that_the_port_has_or_has_nothing_like_stay() -> None:
    assert told_with("self.gain * x + self.momentum") == "self.gain * x + self.momentum"
