"""Lines of the port that give its values together only."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from twinalign.replay.aligned_code import Code, Difference
from twinalign.replay.helpers import Helpers
from twinalign.replay.port_lines import LinesVariant
from twinalign.replay.several_lines import several

CODE = Code(ast.parse("def f():\n    pass").body[0], "net.py", "f")  # type: ignore[arg-type]
USUAL = {"x": np.ones(3)}


def line(text: str, old: str | None = "a", new: str | None = "b") -> LinesVariant:
    nodes = [None if one is None else ast.parse(one).body[0] for one in (old, new)]
    return LinesVariant(text, (Difference(CODE, CODE, (0, "instead"), *nodes),), None, {}, Helpers({}, ()))


def told(lines: list[LinesVariant], needed: set[str], raising: tuple[str, ...] = ()) -> list[str]:
    """What is found where `needed` give the port's values together; all but `same` change the first values."""

    def begins(one: LinesVariant | None) -> Mapping[str, np.ndarray]:
        if one is not None and one.detail in raising:
            raise NameError(one.detail)
        return USUAL if one is None or "same" in one.detail else {"x": np.full(3, 2.0)}

    def gives_port(variant: LinesVariant) -> bool:
        return needed <= {part for one in lines if set(one.lines) <= set(variant.lines) for part in [one.detail]}

    return [one.detail for one in several(lines, begins, gives_port)]


def test_the_fewest_lines_are_told() -> None:
    assert told([line("one"), line("two"), line("three")], {"one", "three"}) == ["one; three"]


def test_a_line_that_shows_later_is_among_them() -> None:
    assert told([line("one"), line("same")], {"one", "same"}) == ["one; same"]


def test_what_only_the_port_has_may_need_another_line_to_run() -> None:
    found = told([line("one"), line("added", None)], {"one", "added"}, raising=("added",))
    assert found == ["one; what one side alone has: added"]


def test_a_line_that_does_not_run_is_left_out() -> None:
    assert told([line("one"), line("two"), line("raises")], {"one", "two"}, raising=("raises",)) == ["one; two"]


def test_one_line_alone_is_not_told_again() -> None:
    assert told([line("one"), line("two")], {"one"}) == []


def test_where_all_do_not_give_the_port_two_are_tried() -> None:
    assert told([line("one"), line("two")], {"missing"}) == ["one; two"]
