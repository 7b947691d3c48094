"""Statements of a block that one side lacks, and statements that have moved."""

from __future__ import annotations

import pytest

from twinalign.replay.aligned_code import differences, parsed
from twinalign.replay.helpers import Helpers
from twinalign.replay.moved_statements import moved
from twinalign.replay.port_lines import LinesVariant

REFERENCE = """
def forward(self, x):
    index = self.nearest(x)
    found = index @ self.table
    self.count.copy_(0.9 * self.count + 0.1 * index.sum(0))
    self.table.copy_(self.total / self.count)
    return found
"""
PORT = """
def forward(self, x):
    index = self.nearest(x)
    found = index @ self.table
    with paddle.no_grad():
        self.count.set_value(0.99 * self.count + 0.1 * index.sum(0))
        self.table.set_value(self.total / self.count)
    return found
"""


def lines_between(reference: str, port: str) -> list[LinesVariant]:
    theirs = parsed(reference.strip(), "ref.py", 1, "forward", "torch")
    ours = parsed(port.strip(), "port.py", 1, "forward", "paddle")
    assert theirs is not None
    assert ours is not None
    return [
        LinesVariant(one.text, (one,), None, {}, Helpers({}, ()))
        for one in differences(theirs, ours)
        if not one.has_same_words
    ]


@pytest.mark.parametrize("block", ["with paddle.no_grad():", "if self.training:"])
def test_statements_of_a_block_that_the_reference_lacks_stand_beside_its_own(block: str) -> None:
    found = [one.detail for one in lines_between(REFERENCE, PORT.replace("with paddle.no_grad():", block))]
    text = "self.count.set_value(0.99 * self.count + 0.1 * index.sum(0))"
    assert f"`{text}` in place of `{text.replace('set_value', 'copy_').replace('99', '9')}`, " in "".join(found)
    assert "line 5 of port.py and line 4 of ref.py" in found[0]
    assert len(found) == 2


def test_statements_of_a_block_that_the_port_lacks_stand_beside_its_own() -> None:
    inside = REFERENCE.replace("    self.", "        self.").replace("        self.count", "X", 1)
    inside = inside.replace("X", "    with torch.no_grad():\n        self.count")
    found = [one.detail for one in lines_between(inside, REFERENCE.replace("0.9 *", "0.99 *"))]
    assert found[0] == "the port lacks `with torch.no_grad(): ...`, line 4 of ref.py"
    assert "line 4 of port.py and line 5 of ref.py" in found[1]
    assert len(found) == 2


@pytest.mark.parametrize("block", ["if self.training:", "if x.sum() > 0:"])
def test_a_condition_that_ends_the_run_or_computes_something_stays_whole(block: str) -> None:
    inside = "        return index" if "training" in block else "        index = index + 1"
    found = lines_between(REFERENCE, REFERENCE.replace("    found", f"    {block}\n{inside}\n    found"))
    assert [one.detail for one in found] == [
        f"the port alone has `{block} {inside.strip()}`, line 3 of port.py",
    ]


def test_statements_that_one_side_alone_has_carry_their_own_lines() -> None:
    more = "    index = index * 2\n    index = index + 1\n"
    (one,) = lines_between(REFERENCE, REFERENCE.replace("    found", f"{more}    found"))
    assert one.detail == "the port alone has `index = index * 2 index = index + 1`, line 3 of port.py"
    assert one.lines[0].lines_of_port == [("port.py", 3, 4)]
    details = [one.detail for one in lines_between(REFERENCE.replace("    found", f"{more}    found"), REFERENCE)]
    assert details == [
        "the port lacks `index = index * 2`, line 3 of ref.py",
        "the port lacks `index = index + 1`, line 4 of ref.py",
    ]


LOOKUP = "    found = index @ self.table\n"
COUNT = "    self.count.copy_(0.9 * self.count + 0.1 * index.sum(0))\n"
UPDATE = "    self.table.copy_(self.total / self.count)\n"


@pytest.mark.parametrize(
    ("port", "said"),
    [
        (
            REFERENCE.replace(LOOKUP, "").replace(UPDATE, UPDATE + LOOKUP),
            "`found = index @ self.table` stands behind `self.table.copy_(self.total / self.count)`, in the reference "
            "before it, line 5 of port.py and line 3 of ref.py",
        ),
        (
            REFERENCE.replace(COUNT, "").replace(UPDATE, "").replace(LOOKUP, UPDATE + LOOKUP),
            "`self.table.copy_(self.total / self.count)` stands before `found = index @ self.table`, in the reference "
            "behind it, line 3 of port.py and line 4 of ref.py",
        ),
    ],
)
def test_a_statement_that_has_moved_says_across_what(port: str, said: str) -> None:
    reference = REFERENCE if COUNT in port else REFERENCE.replace(COUNT, "")
    (found,) = moved(lines_between(reference, port))
    assert found.detail == said
    assert len(found.lines) == 2


def test_a_statement_that_has_left_a_block_and_has_another_number_says_both() -> None:
    reference = REFERENCE.replace(UPDATE, "    with torch.no_grad():\n        self.table.mul_(0.9)\n")
    port = REFERENCE.replace(UPDATE, "").replace(LOOKUP, "    self.table.mul_(0.8)\n" + LOOKUP)
    (found,) = moved(lines_between(reference, port))
    assert found.detail == (
        "`self.table.mul_(0.8)` stands before `found = index @ self.table`, in the reference behind it, where that "
        "reads `self.table.mul_(0.9)`, line 3 of port.py and line 6 of ref.py"
    )


def test_what_only_one_side_has_has_not_moved() -> None:
    assert moved(lines_between(REFERENCE, REFERENCE.replace(UPDATE, ""))) == []
    other = REFERENCE.replace(UPDATE, "").replace(LOOKUP, "    print(index, x)\n" + LOOKUP)
    assert moved(lines_between(REFERENCE, other)) == []
