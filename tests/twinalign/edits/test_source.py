"""Edits of calls keep everything around them, and fit the text that they were made for."""

from __future__ import annotations

import pytest

from twinalign.edits.source import Source, applied, with_arguments

TEXT = "norm = nn.LayerNorm(dim, 1e-5)  # kept\nother = nn.LayerNorm( dim )\r\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [(1, "norm = nn.LayerNorm(dim, 1e-6)  # kept"), (2, "other = nn.LayerNorm( dim, epsilon=1e-6 )\r")],
)
def test_an_argument_is_replaced_where_it_stands_or_added(line, expected):
    source = Source("port.py", TEXT)
    call = next(source.calls(line, line))
    edit = source.edit(call, with_arguments(call, {"epsilon": 1e-6}, ["normalized_shape", "epsilon"]))
    assert applied(TEXT, [edit]).split("\n")[line - 1] == expected
    with pytest.raises(ValueError, match=r"port.py:\d: the text is not"):
        applied(TEXT.replace("dim", "size"), [edit])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("make(\n        1,\n        b=2\n    )", "make(\n        1,\n        b=2,\n        c=3\n    )"),
        ("make(\n        1,\n        b=2,\n    )", "make(\n        1,\n        b=2,\n        c=3,\n    )"),
        ("make()", "make(c=3)"),
        ("make(1,)", "make(1, c=3,)"),
    ],
    ids=["lines", "lines that end in a comma", "no arguments", "a comma"],
)
def test_a_call_in_an_indented_block_keeps_its_layout(call, expected):
    text = f"def build():\n    return {call}\n"
    source = Source("port.py", text)
    built = next(source.calls(2, 2))
    edit = source.edit(built, with_arguments(built, {"c": 3}, []))
    assert applied(text, [edit]) == f"def build():\n    return {expected}\n"
