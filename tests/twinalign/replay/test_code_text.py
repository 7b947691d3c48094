"""Pieces of code as a reader is shown them."""

import ast

import pytest

from twinalign.replay.code_text import LONGEST, shortened


@pytest.mark.parametrize(
    ("code", "shown"),
    [("x[:, a:a + 1]", "[:, a:a + 1]"), ("x[::2]", "[::2]"), ("x[0]", "0"), ("x[1, 2]", "(1, 2)")],
)
def test_slices_are_shown_in_brackets(code: str, shown: str) -> None:
    tree = ast.parse(code, mode="eval").body
    assert isinstance(tree, ast.Subscript)
    assert shortened(tree.slice) == shown


def test_what_is_long_is_cut_off() -> None:
    text = shortened(ast.parse("sum(" + ", ".join(["value"] * 40) + ")", mode="eval").body)
    assert text.endswith("…")
    assert len(text) == LONGEST + 1
