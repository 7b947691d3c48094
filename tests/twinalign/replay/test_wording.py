"""Edits that bring code of the port nearer to the reference's wording."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.wording import Wording

OURS = "correct = (scores.argmax(axis=0) == labels).sum() / labels.size"
THEIRS = "return (out.argmax(dim=1) == target).sum().item() / (target != padding).sum()"


@pytest.mark.parametrize(
    ("old", "new", "nearer"),
    [
        ("0", "1", True),
        ("labels.size", "labels.sum()", True),
        ("scores.argmax(axis=0)", "scores.argmin(axis=0)", False),
        ("labels", "scores", False),
    ],
)
def test_what_the_reference_says_is_nearer_to_it(old: str, new: str, nearer: bool) -> None:
    wording = Wording([ast.parse(OURS)], [ast.parse(THEIRS)])
    assert (wording.gain(ast.parse(old), ast.parse(new)) > 0) is nearer


def test_names_of_values_say_nothing() -> None:
    wording = Wording([ast.parse("a = b + c")], [ast.parse("x = y + z")])
    assert wording.gain(ast.parse("b"), ast.parse("y")) == 0
