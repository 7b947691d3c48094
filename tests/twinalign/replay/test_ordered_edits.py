"""Which edits of the port's code are tried, in which order, and which of them is taken."""

from __future__ import annotations

import ast
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from twinalign.replay.aligned_code import Code
from twinalign.replay.grafts import Graft
from twinalign.replay.helper_edits import Edit, HelperEdit
from twinalign.replay.likeness import are_siblings
from twinalign.replay.ordered_edits import Fit, edited, fitting_edit, ordered_edits
from twinalign.replay.running_functions import Ran, functions_of, nodes_that_ran
from twinalign.replay.slices import distances, named_parts


def module(source: str, name: str = "port_under_edit") -> Any:
    """A module of this text, which `linecache` knows, so that its functions have a source."""
    import linecache

    text, file = textwrap.dedent(source).lstrip(), f"/somewhere/{name}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    made = types.ModuleType(name)
    made.__file__ = file
    exec(compile(text, file, "exec"), made.__dict__)
    return made


PORT = """
import numpy as np

def rate(step, warmup=2, every=3):
    if step < warmup:
        return step / warmup
    drops = (step - warmup) // every
    return 0.5 ** drops

def unused(step):
    return step + 40

def results(step):
    offset = step * 3.0
    return {"rate": rate(step), "offset": offset}
"""


def found_of(wrong: Callable[[Any], bool], name: str, source: str = PORT) -> tuple[dict[str, Any], list[str]]:
    """The edit that is found where results under this name are wrong, and the texts of all that were tried."""
    port = module(source)

    def run() -> None:
        for step in range(9):
            port.results(step)

    codes, ran, tried = functions_of(run, "paddle"), Ran.of(run), list[str]()
    far = distances(codes, named_parts(codes, [name]), {})

    def fit(edit: Edit) -> Fit:
        tried.append(edit.text)
        try:
            with edited(edit):
                return Fit.NOTHING if wrong(port) else Fit.ALL
        except Exception:
            return Fit.NOTHING

    return fitting_edit(ordered_edits(codes, [], far, ran=ran), fit, 20.0), tried


def test_one_more_step_before_the_rate_falls_is_found_near_the_wrong_value() -> None:
    right = [step / 2 if step < 2 else 0.5 ** ((step - 2) // 3 + 1) for step in range(9)]
    found, tried = found_of(lambda port: [port.results(step)["rate"] for step in range(9)] != right, "rate")
    assert found["edit"]["after"] in ("0.5 ** (drops + 1)", "(step - warmup) // every + 1")
    assert not any("unused" in one or "step + 40" in one for one in tried)  # it has not run
    assert not any("3.0" in one for one in tried)  # no rate is made of it


def test_a_sibling_of_a_name_comes_before_other_names() -> None:
    source = """
    def results(step, slope=3.0):
        b1, b2 = 0.9, 0.99
        return {"rate": b1 * (1 - b2 ** step), "slope": slope}
    """
    right = [0.9 * (1 - 0.9**step) for step in range(9)]
    found, tried = found_of(lambda port: [port.results(step)["rate"] for step in range(9)] != right, "rate", source)
    assert found["edit"]["after"] == "b1 ** step"
    assert not any("slope **" in one or "** slope" in one for one in tried)


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        ("b1", "b2", True),
        ("x01", "x10", True),
        ("src_mask", "tgt_mask", True),
        ("mask", "masks", False),
        ("step", "slope", False),
        ("b1", "b1", False),
    ],
)
def test_siblings_differ_in_a_number_or_a_word(one: str, other: str, are: bool) -> None:
    assert are_siblings(one, other) == are


def test_without_an_edit_that_fits_there_is_none() -> None:
    assert found_of(lambda port: True, "rate")[0] == {}


def test_what_breaks_right_values_postpones_its_part_alone() -> None:
    port = module(PORT)
    codes = functions_of(lambda: port.results(4), "paddle")
    edits = [one for one in ordered_edits(codes, [], {}) if isinstance(getattr(one, "old", None), ast.Constant)]
    first = edits[0]
    others = [one for one in edits if one.old is first.old]  # type: ignore[union-attr]
    assert len(others) > 2
    order: list[Edit] = []

    def fit(edit: Edit) -> Fit:
        order.append(edit)
        return Fit.BROKEN if edit is first else Fit.NOTHING

    assert fitting_edit(edits, fit, 20.0) == {}
    assert len(order) == len(edits)
    assert {id(one) for one in order[-len(others) + 1 :]} == {id(one) for one in others[1:]}


def test_within_an_expression_that_fits_a_smaller_one_is_found() -> None:
    port = module(SUM)
    (code,) = functions_of(lambda: port.total(np.ones((2, 3))), "paddle")
    (whole,) = [node.value for node in code.nodes if isinstance(node, ast.Return)]
    assert isinstance(whole, ast.BinOp)

    def graft(old: ast.expr, new: str) -> Graft:
        return Graft(code, old, ast.copy_location(ast.parse(new, mode="eval").body, old))

    large = graft(whole, "x.sum() - x.mean(axis=0)")
    beside, small = graft(whole.left, "x.sum() * 1.0"), graft(whole.right, "x.mean(axis=0)")
    fits = {id(large): Fit.ALL, id(small): Fit.ALL}
    found = fitting_edit([large, beside, small], lambda edit: fits.get(id(edit), Fit.NOTHING), 20.0)
    assert found["edit"] == {"before": "x.mean()", "after": "x.mean(axis=0)"}
    assert found["lines_of_port"] == [("port_under_edit.py", 3, 3)]


def test_an_edit_that_says_less_than_the_reference_does_not_take_its_place() -> None:
    port = module("def recall(hits, gains, k):\n    return (hits.sum(1) / k).mean()\n")
    (code,) = functions_of(lambda: port.recall(np.ones((2, 3)), np.eye(2), 3), "paddle")
    (call,) = [node.value for node in code.nodes if isinstance(node, ast.Return)]
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Attribute)
    ratio = call.func.value
    assert isinstance(ratio, ast.BinOp)
    of_reference = ast.parse("hits.sum(1) / gains.sum(1)", mode="eval").body
    graft = Graft(code, ratio, ast.copy_location(of_reference, ratio))
    less = HelperEdit(code, ratio, ratio.left)  # as right where all gains are one
    as_much = HelperEdit(code, ratio.right, ast.copy_location(of_reference.right, ratio.right))  # type: ignore[attr-defined]
    assert fitting_edit([graft, less], lambda edit: Fit.ALL, 20.0)["made"] is graft
    assert fitting_edit([graft, less, as_much], lambda edit: Fit.ALL, 20.0)["made"] is as_much


def test_a_gradient_is_stopped_where_the_reference_stops_it_before_all_callers() -> None:
    port = module("def inner(a, b):\n    return abs(a) * b\n\ndef outer(a, b):\n    return {'loss': inner(a, b)}\n")
    codes = functions_of(lambda: port.outer(1.0, 2.0), "paddle")
    theirs = [ast.parse("def deep(a, b):\n    return abs(a).detach() * b")]
    first = next(iter(ordered_edits(codes, theirs, {}, of_gradients=True)))
    assert "`abs(a)` in place of `abs(a).detach()`, line 2" in first.text


def test_no_edit_leaves_a_statement_without_an_effect_or_moves_other_code() -> None:
    port = module(IN_PLACE)
    (code,) = functions_of(lambda: port.updated([1.0], 2.0), "paddle")
    places = {id(node): node.lineno for node in code.nodes if isinstance(node, ast.expr)}
    texts = [edit.text for edit in ordered_edits([code], [], {})]
    assert any("append" in text for text in texts)
    assert not any("(kept + kept)" in text or "in place of `kept`, line 3" in text for text in texts)
    assert {id(node): node.lineno for node in code.nodes if isinstance(node, ast.expr)} == places


def test_what_mends_the_whole_port_counts_more_than_what_mends_one_unit() -> None:
    """A unit of which another one calls the same function: what fits there by chance is wrong in the other."""
    port = module(PORT)
    edits = list(ordered_edits(functions_of(lambda: port.results(4), "paddle"), [], {}))
    for fits, taken in (
        ({2: Fit.UNIT, 4: Fit.ALL}, 4),
        ({2: Fit.UNIT, 4: Fit.UNIT}, 2),
        ({2: Fit.VALUES, 4: Fit.UNIT}, 4),
    ):
        asked: Mapping[int, Fit] = fits
        found = fitting_edit(edits, lambda edit, asked=asked: asked.get(edits.index(edit), Fit.NOTHING), 20.0)
        assert found["text"] == edits[taken].text


def test_values_alone_count_where_nothing_else_fits() -> None:
    port = module(PORT)
    edits = list(ordered_edits(functions_of(lambda: port.results(4), "paddle"), [], {}))
    fits: Mapping[int, Fit] = {3: Fit.VALUES, 5: Fit.ALL}

    def fit(edit: Edit) -> Fit:
        return fits.get(edits.index(edit), Fit.NOTHING) if edit in edits else Fit.NOTHING

    assert fitting_edit(edits, fit, 20.0)["text"] == edits[5].text
    assert fitting_edit(edits[:5], fit, 20.0)["text"] == edits[3].text


SUM = """
def total(x):
    return (
        x.sum() - x.mean()
    )
"""
IN_PLACE = """
def updated(kept, x):
    kept.append(x * 2.0)
    return (
        x
        + kept[0]
    )
"""
KINDS = """
import numpy as np

class Kept:
    def __init__(self):
        self.values, self.count, self.name = np.ones((2, 3)), 2, "kept"

    def of(self, scale, rows):
        chosen = self.values > 0.5
        for step in range(2):
            late = step
        return self.values[chosen] * scale + rows

def results():
    return Kept().of(2.0, 3)
"""


@pytest.mark.parametrize(
    ("old", "new", "may"),
    [
        ("scale", "rows", True),
        ("scale", "chosen", False),
        ("self.values", "self.name", False),
        ("self.values", "self.values[chosen]", True),
        ("scale", "scale[chosen]", False),
        ("scale", "scale * np", False),
        ("scale", "scale.detach()", False),
        ("scale", "nowhere", False),
        ("chosen", "len(chosen)", False),
    ],
)
def test_what_may_stand_in_place_of_what(old: str, new: str, may: bool) -> None:
    port = module(KINDS, "kinds_under_edit")
    codes, ran = functions_of(port.results, "paddle"), Ran.of(port.results)
    code = next(one for one in codes if one.name == "Kept.of")
    named = [one for one in ast.walk(code.tree) if isinstance(getattr(one, "ctx", None), ast.Load)]
    node = max((one for one in named if ast.unparse(one) == old), key=lambda one: one.lineno)
    made = ast.parse(new, mode="eval").body
    # What stays of the code is the same node, as in an edit.
    for one in ast.walk(made):
        for field, value in ast.iter_fields(one):
            if isinstance(value, ast.AST) and ast.unparse(value) == old:
                setattr(one, field, node)
    assert ran.may_stand(code, node, made) is may


def test_whole_numbers_are_known() -> None:
    port = module(PORT)
    codes = functions_of(lambda: port.results(4), "paddle")
    ran = Ran.of(lambda: port.results(4))
    code = next(one for one in codes if one.name == "rate")
    nodes = {ast.unparse(one): one for one in ast.walk(code.tree) if isinstance(one, ast.expr)}
    assert ran.is_whole(code, nodes["step"])
    assert ran.is_whole(code, nodes["(step - warmup) // every"])
    assert not ran.is_whole(code, nodes["0.5 ** drops"])


def test_branches_that_did_not_run_are_left_out() -> None:
    port = module(PORT)
    codes, ran = functions_of(lambda: port.results(4), "paddle"), Ran.of(lambda: port.results(4))
    code: Code = next(one for one in codes if one.name == "rate")
    nodes, found = {ast.unparse(one): one for one in ast.walk(code.tree)}, nodes_that_ran(codes, ran.lines)
    assert id(nodes["(step - warmup) // every"]) in found
    assert id(nodes["step < warmup"]) in found
    assert id(nodes["step / warmup"]) not in found


def test_an_edit_runs_inside_of_the_block_alone() -> None:
    port = module(PORT)
    codes = functions_of(lambda: port.results(4), "paddle")
    edit = next(one for one in ordered_edits(codes, [], {}) if "offset" not in one.text and "`3.0`" in one.text)
    before = port.results(4)
    with edited(edit):
        assert port.results(4) != before
    assert port.results(4) == before
    assert np.isfinite(before["offset"])


def test_lists_that_are_added_may_be_added_otherwise() -> None:
    source = "def results(one, more):\n    kept = one + more + [1]\n    return kept\n"
    port = module(source, "lists_under_edit")

    def run() -> Any:
        return port.results([2], [3])

    (code,), ran = functions_of(run, "paddle"), Ran.of(run)
    (node,) = [one for one in ast.walk(code.tree) if ast.unparse(one) == "one + more + [1]"]
    assert ran.may_stand(code, node, ast.parse("one + more", mode="eval").body)
    (name,) = [one for one in ast.walk(code.tree) if isinstance(one, ast.Name) and one.id == "kept" and one.lineno == 3]
    assert not ran.may_stand(code, name, ast.parse("one * 2", mode="eval").body)


def test_what_mends_values_alone_mends_all_with_a_gradient_stopped_in_it() -> None:
    tree = ast.parse("def of(x, y):\n    return x * 2\n").body[0]
    assert isinstance(tree, ast.FunctionDef)
    old = tree.body[0].value  # type: ignore[attr-defined]
    edit = HelperEdit(Code(tree, "port.py", "of"), old, ast.parse("x * y", mode="eval").body)

    def fit(other: Edit) -> Fit:
        return {"x * y": Fit.VALUES, "x * y.detach()": Fit.ALL}.get(
            ast.unparse(other.new) if isinstance(other, HelperEdit) else "", Fit.NOTHING
        )

    answer = fitting_edit([edit], fit, 5.0)
    assert answer["text"] == "`x * 2` in place of `x * y.detach()`, line 2 of port.py"
    assert answer["mends_all"]
    assert fitting_edit([edit], lambda other: min(fit(other), Fit.VALUES, key=lambda one: one.value), 5.0)["text"] == (
        "`x * 2` in place of `x * y`, line 2 of port.py"
    )
