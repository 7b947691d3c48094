"""Copies that a function lacks of what it changes, or keeps while others change it."""

from __future__ import annotations

import ast

from twinalign.replay.aligned_code import Code
from twinalign.replay.own_copies import lacking_copies, own_copies

CODE = """
def view(self, items, stamps, rng):
    begin = len(items) // 2
    rng.shuffle(items[begin:])
    kept = self.table
    kept[0] = stamps[0]
    self.last = kept
    self.seen.append(items)
    other = stamps
    return self.table
"""


def code() -> Code:
    tree = ast.parse(CODE.strip()).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return Code(tree, "port.py", "view")


def test_values_that_are_changed_kept_or_returned_are_copied() -> None:
    found = {ast.unparse(new) for _, new in own_copies(code().tree) if ast.unparse(new).endswith("copy()")}
    assert {"self.table.copy()", "kept.copy()", "items.copy()", "items[begin:].copy()"} <= found
    assert "stamps.copy()" not in found  # nothing changes it


def test_a_parameter_that_is_changed_in_place_is_copied_first() -> None:
    theirs = [ast.parse("order = items.clone()")]
    told = {edit.text: edit for edit in lacking_copies(code(), theirs)}
    edit = told[
        "`items = items.copy()` is lacking before `begin = len(items) // 2`, line 2 of port.py: with it the port does "
        "what the reference does"
    ]
    assert ast.unparse(edit.edited.tree).splitlines()[1].strip() == "items = items.copy()"
    assert edit.is_as_theirs
    assert not any(one.is_as_theirs for one in lacking_copies(code(), [ast.parse("order = sorted(items)")]))
    assert not any("stamps" in text for text in told)
