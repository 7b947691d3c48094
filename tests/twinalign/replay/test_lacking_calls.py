"""Functions that the reference calls, around parts of the port."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.aligned_code import parsed
from twinalign.replay.lacking_calls import lacking_calls


@pytest.mark.parametrize(
    ("ours", "theirs", "meant"),
    [
        ("return sizes @ turn", "sizes @ torch.abs(turn)", ("turn", "turn.abs()")),
        ("return sizes @ turn", "sizes @ turn.abs()", ("turn", "turn.abs()")),
        ("return scores * gate", "scores * F.softplus(gate)", ("gate", "gate.softplus()")),
    ],
)
def test_what_the_port_lacks_is_called(ours: str, theirs: str, meant: tuple[str, str]) -> None:
    code = parsed(f"def f(self, sizes, turn, scores, gate):\n    {ours}\n", "ours.py", 1, "f", "paddle")
    assert code is not None
    edits = lacking_calls(code, code.tree.body, list(ast.walk(ast.parse(theirs))), [code])
    assert meant in {(ast.unparse(old), ast.unparse(new)) for old, new in edits}


@pytest.mark.parametrize("theirs", ["x.abs()", "torch.add(x, y)", "x.detach()", "x.sum(dim=1)"])
def test_what_the_port_calls_or_takes_more_is_left_out(theirs: str) -> None:
    code = parsed("def f(x, y):\n    return x.abs() + y\n", "ours.py", 1, "f", "paddle")
    assert code is not None
    assert list(lacking_calls(code, code.tree.body, list(ast.walk(ast.parse(theirs))), [code])) == []
