"""Of an expression that is taken from the reference, the part that is enough is told."""

from __future__ import annotations

import ast

from tests.twinalign.replay.test_ordered_edits import module
from twinalign.replay.counted_elements import counted_elements
from twinalign.replay.grafts import Graft
from twinalign.replay.parts_of_grafts import smallest
from twinalign.replay.running_functions import functions_of

PORT = """
import numpy as np

def spread(x):
    centred = x - x.mean()
    return (centred ** 2).mean(axis=1)
"""
NEW = "(x - x.mean(axis=1, keepdims=True)).__pow__(2).mean(axis=1)"


def made() -> Graft:
    import numpy as np

    port = module(PORT, "port_of_grafts")
    (code,) = functions_of(lambda: port.spread(np.ones((2, 3))), "paddle")
    old = code.tree.body[-1].value  # type: ignore[attr-defined]
    return Graft(code, old, ast.copy_location(ast.parse(NEW, mode="eval").body, old))


def test_the_part_stands_where_a_name_is_made() -> None:
    tried: list[str] = []

    def is_right(edit: object) -> bool:
        tried.append(edit.text)  # type: ignore[attr-defined]
        return "keepdims" in tried[-1]

    edit = smallest(made(), is_right)
    assert edit.text == "`x.mean()` in place of `x.mean(axis=1, keepdims=True)`, line 4 of port_of_grafts.py"
    assert type(edit) is not Graft


def test_without_a_part_that_is_enough_the_whole_stays() -> None:
    graft = made()
    assert smallest(graft, lambda edit: False) is graft


def test_sizes_are_counted_over_all_other_axes() -> None:
    code = ast.parse("n = x.shape[0] * x.shape[1]\nm = y.size\nk = x.shape[i]")
    edits = [(ast.unparse(old), ast.unparse(new)) for old, new in counted_elements([code])]
    assert {old for old, _ in edits} == {"x.shape[0] * x.shape[1]"}
    assert ("x.shape[0] * x.shape[1]", "x.shape[0] * x.shape[2] * x.shape[3]") in edits
    assert ("x.shape[0] * x.shape[1]", "x.shape[0] * x.shape[1]") not in edits
    assert len(edits) == 2**5 - 2
