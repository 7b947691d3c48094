"""Shares of a range that begins where a condition says."""

from __future__ import annotations

import ast

from twinalign.replay.shares_of_ranges import shares_of_ranges


def edits(text: str) -> list[str]:
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return [ast.unparse(new) for _, new in shares_of_ranges(tree)]


def test_a_share_begins_where_a_condition_ends() -> None:
    text = "def rate(step, total, warm):\n    if step < warm:\n        return 0.0\n    return SHARE"
    assert edits(text.replace("SHARE", "step / total")) == ["(step - warm) / (total - warm)"]
    assert edits(text.replace("SHARE", "(step - warm) / (total - warm)")) == ["step / total"]
    assert edits(text.replace("SHARE", "total / warm")) == []
