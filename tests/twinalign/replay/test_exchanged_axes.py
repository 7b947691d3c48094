"""Sizes of a reshape and axes of a transposition in another order, in two statements."""

from __future__ import annotations

import ast

from twinalign.replay.exchanged_axes import exchanged_axes

CODE = """
def forward(self, x):
    b, n, d = x.shape
    qkv = self.qkv(x).reshape([b, n, self.heads, 3, self.dim])
    q, k, v = qkv.transpose([3, 0, 2, 1, 4]).unbind(axis=0)
    return q, k, v
"""


def test_both_statements_are_edited_together() -> None:
    found = {(ast.unparse(one[1]), ast.unparse(other[1])) for one, other in exchanged_axes(ast.parse(CODE))}
    right = "self.qkv(x).reshape([b, n, 3, self.heads, self.dim])", "qkv.transpose([2, 0, 3, 1, 4])"
    assert right in found
    assert len(found) == 10


def test_a_transposition_of_something_else_stays() -> None:
    assert list(exchanged_axes(ast.parse(CODE.replace("qkv.transpose", "x.transpose")))) == []
