"""An edit's text before it is what stands in the file, whatever lines and brackets it goes over."""

from __future__ import annotations

import libcst as cst
import pytest

from twinalign.edits.source import Source, applied, called_otherwise, with_arguments

TEXT = """def build(parameters):
    if parameters:
        return optimizer.Adam(
            1e-3,
            parameters=parameters,  # all of them
        )
    x = 2 * (parameters - shift(
        1
    ))
"""


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        (
            "Adam",
            "        return optimizer.Lamb(\n            1e-3,\n            parameters=parameters,  # all of them\n",
        ),
        ("shift", "(parameters - Lamb(\n        1\n    ))"),
    ],
)
def test_a_call_over_several_lines(kind: str, after: str) -> None:
    source = Source("port.py", TEXT)
    (call,) = [call for call in source.calls(1, 9) if source.text_of(call.func).endswith(kind)]
    edit = source.edit(call, called_otherwise(call, "Lamb"))
    assert edit is not None
    assert after in applied(TEXT, [edit])


def test_an_argument_is_added_to_a_call_over_several_lines() -> None:
    source = Source("port.py", TEXT)
    (call,) = [call for call in source.calls(1, 9) if source.text_of(call.func).endswith("Adam")]
    edit = source.edit(call, with_arguments(call, {"beta2": 0.95}, []))
    assert edit is not None
    found = applied(TEXT, [edit])
    compile(found, "port.py", "exec")
    assert "beta2=0.95" in found


def test_brackets_around_an_expression_stay() -> None:
    source = Source("port.py", TEXT)
    (difference,) = [
        node
        for node in source.positions
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Subtract)
    ]
    edit = source.edit(difference, difference.with_changes(operator=cst.Add()))
    assert edit is not None
    assert "2 * (parameters + shift(\n        1\n    ))" in applied(TEXT, [edit])
