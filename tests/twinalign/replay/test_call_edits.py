"""Small edits of calls."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.call_edits import of_call


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("sum(paddle.sqrt(x) for x in xs)", "paddle.sqrt(sum((x for x in xs)))"),
        ("paddle.sqrt(sum(x * x for x in xs))", "sum((paddle.sqrt(x * x) for x in xs))"),
        ("sum([x.abs() for x in xs])", "sum([x for x in xs]).abs()"),
        ("sum([x for x in xs]).abs()", "sum([x.abs() for x in xs])"),
        ("sum(x ** 2 for x in xs)", "sum((x for x in xs)) ** 2"),
    ],
)
def test_what_is_done_with_each_is_done_with_all_and_the_other_way(line: str, meant: str) -> None:
    assert meant in [ast.unparse(new) for new in of_call(ast.parse(line, mode="eval").body)]


def test_what_is_done_with_two_things_stays_where_it_is() -> None:
    line = ast.parse("sum(paddle.pow(x, y) for x in xs)", mode="eval").body
    assert not [one for one in map(ast.unparse, of_call(line)) if one.startswith("paddle.pow(sum(")]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("np.arange(order)", "np.arange(1, order)"),
        ("paddle.arange(1, order, dtype='float64')", "paddle.arange(order, dtype='float64')"),
        ("range(steps)", "range(1, steps)"),
        ("np.arange(start, start + n)", "np.arange(n)"),
        ("np.arange(start, n + start, dtype=int)", "np.arange(n, dtype=int)"),
        ("range(first, last)", "range(last - first)"),
        ("range(steps)", "reversed(range(steps))"),
        ("reversed(range(steps))", "range(steps)"),
    ],
)
def test_whole_numbers_begin_elsewhere_or_come_in_the_other_order(line: str, meant: str) -> None:
    assert meant in [ast.unparse(new) for new in of_call(ast.parse(line, mode="eval").body)]
