"""Edits of what assignments do with a value."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.assignment_edits import assignment_edits, repeated_edits, sibling_edits

LOOP = """
def evaluate(model, rows):
    state, total = None, 0.0
    for row in rows:
        scores, _, _ = model(row, state)
        total {} scores.sum()
    return total, state
"""


def edits(source: str) -> list[tuple[str, str]]:
    (tree,) = ast.parse(source.strip()).body
    assert isinstance(tree, ast.FunctionDef)
    return [(ast.unparse(old), ast.unparse(new)) for old, new in assignment_edits(tree)]


@pytest.mark.parametrize(
    ("sign", "old", "new"),
    [
        ("+=", "(scores, _, _)", "(scores, _, state)"),
        ("+=", "(scores, _, _)", "(_, scores, _)"),
        ("+=", "(scores, _, _)", "(scores, state, _)"),
        ("=", "total = scores.sum()", "total += scores.sum()"),
        ("+=", "total += scores.sum()", "total = scores.sum()"),
        ("+=", "total += scores.sum()", "total -= scores.sum()"),
        ("+=", "total += scores.sum()", "total = max(total, scores.sum())"),
    ],
)
def test_a_value_goes_elsewhere_or_is_added(sign: str, old: str, new: str) -> None:
    assert (old, new) in edits(LOOP.format(sign))


def test_what_is_assigned_once_is_never_added() -> None:
    assert edits("def f(x):\n    y = x + 1\n    return y") == []


def test_a_sibling_is_read_throughout_a_statement() -> None:
    source = """
def step(self, p, m, b1, b2, bias):
    m.set_value(b1 * m + (1 - b1) * p.grad)
    return m * b1 + bias
"""
    (tree,) = ast.parse(source.strip()).body
    assert isinstance(tree, ast.FunctionDef)
    found = [ast.unparse(new) for _, new in sibling_edits(tree)]
    assert found == ["m.set_value(b2 * m + (1 - b2) * p.grad)"]


def test_what_a_statement_computes_twice_is_a_name_in_both_places() -> None:
    tree = ast.parse(
        "def of(self, x, y):\n    n = self.norm(x)\n    return self.f(y, self.norm(x), self.norm(x))\n"
    ).body[0]
    assert isinstance(tree, ast.FunctionDef)
    pairs = list(repeated_edits(tree))
    assert [{ast.unparse(old) for old, _ in pair} for pair in pairs] == [{"self.norm(x)"}] * 3
    assert [{ast.unparse(new) for _, new in pair} for pair in pairs] == [{"x"}, {"y"}, {"n"}]
