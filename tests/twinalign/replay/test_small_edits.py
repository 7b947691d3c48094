"""Small edits of expressions."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.small_edits import plain_edits


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("(1.0 - w) * flip(x) + w * x", "(1.0 - w) * x + w * flip(x)"),
        ("a * x[0] - b * y", "a * y - b * x[0]"),
    ],
)
def test_weights_are_exchanged(line: str, meant: str) -> None:
    tree = ast.parse(line)
    assert meant in [ast.unparse(new) for _, new in plain_edits([tree], (), ())]


@pytest.mark.parametrize(("line", "meant"), [("int(name[7])", "int(name[7]) + 1"), ("len(row)", "len(row) - 1")])
def test_a_place_is_one_off(line: str, meant: str) -> None:
    tree = ast.parse(line)
    assert meant in [ast.unparse(new) for old, new in plain_edits([tree], (), ()) if isinstance(old, ast.Call)]
