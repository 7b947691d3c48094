"""What only the wrong results of a function need."""

from __future__ import annotations

import ast
import textwrap

import pytest

from twinalign.replay.wrong_results import needed_by_wrong

ROWS = """
def scores(outputs, labels):
    chances = outputs.exp()
    best = chances.argmax(-1)
    rows = []
    for row in best:
        rows.append(row == labels)
    loss = -(chances.log() * labels).mean()
    hits = sum(rows)
    return {"loss": loss, "accuracy": hits / len(rows)}
"""


def lines(source: str, wrong: list[str]) -> set[int]:
    (function,) = ast.parse(textwrap.dedent(source).strip()).body
    assert isinstance(function, ast.FunctionDef)
    return {one.lineno for one in needed_by_wrong(function, wrong)}


def test_what_both_results_need_is_left_out() -> None:
    assert lines(ROWS, ["accuracy"]) == {3, 4, 5, 6, 8, 9}
    assert lines(ROWS, ["loss"]) == {7, 9}


def test_all_wrong_results_need_every_line() -> None:
    assert lines(ROWS, ["loss", "accuracy"]) == set(range(2, 10))


@pytest.mark.parametrize("returned", ["dict(loss=loss, accuracy=hits / len(rows))", "(loss, hits / len(rows))"])
def test_other_forms_of_results(returned: str) -> None:
    source = ROWS.replace('{"loss": loss, "accuracy": hits / len(rows)}', returned)
    assert lines(source, ["loss" if "dict" in returned else "0"]) == {7, 9}


@pytest.mark.parametrize("source", [ROWS + "    return None\n", ROWS.replace("return {", "return other | {")])
def test_results_that_cannot_be_told_apart(source: str) -> None:
    assert lines(source, ["loss"]) == set()


def test_a_result_that_nobody_knows() -> None:
    assert lines(ROWS, ["recall"]) == set()


def test_what_one_statement_makes_together_is_told_apart() -> None:
    source = """
    def scores(rows):
        squares, hits = [], 0
        for row in rows:
            squares.append(row ** 2)
            hits += row > 0
        return {"square": sum(squares), "hits": hits}
    """
    assert lines(source, ["square"]) == {4, 6}
