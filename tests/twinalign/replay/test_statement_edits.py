"""Moves of statements within a loop, and what is told of them."""

from __future__ import annotations

import ast

from twinalign.replay.aligned_code import Code
from twinalign.replay.statement_edits import statement_edits

LOOP = """
def train(model, batches, record):
    for step, batch in enumerate(batches):
        if step == 3:
            break
        loss = model(batch)
        loss.backward()
        average.update(model)
        optimizer.step()
        if step % 2 == 0:
            other.step()
        model.update_targets()
        record("loss", loss)
"""


def told(loop: str = LOOP) -> dict[str, str]:
    tree = ast.parse(loop.strip()).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return {edit.to_do: ast.unparse(edit.edited.tree) for edit in statement_edits(Code(tree, "port.py", "train"))}


def test_a_call_moves_across_the_next_one() -> None:
    found = told()["write `average.update(model)` behind `optimizer.step()`"]
    assert found.index("average.update(model)") > found.index("optimizer.step()")


def test_a_call_moves_into_the_block_beside_it() -> None:
    found = told()["write `model.update_targets()` inside of `if step % 2 == 0`, behind `other.step()`"]
    assert "        other.step()\n            model.update_targets()\n        record" in found


def test_a_call_moves_out_of_its_block() -> None:
    assert any(to_do.startswith("write `other.step()` outside of `if step % 2 == 0`") for to_do in told())


def test_nothing_is_read_before_it_is_made_and_records_stay() -> None:
    assert "write `loss.backward()` before `loss = model(batch)`" not in told()
    assert not any("`record(" in to_do.partition(" behind ")[0] for to_do in told())


def test_a_name_that_is_known_before_may_have_its_next_value() -> None:
    found = told("""
def forward(x, edges):
    count = counted(edges)
    edges = with_loops(edges)
    return x / count
""")
    assert "write `count = counted(edges)` behind `edges = with_loops(edges)`" in found


def test_nothing_moves_from_a_block_inside_of_one_branch_to_the_other_branch() -> None:
    found = told("""
def measured(totals, kept):
    for total in totals:
        if total > 3:
            found = total
        else:
            kept.clear()
            if total > 1:
                kept.append(total)
    return kept
""")
    assert any("`kept.append(total)`" in to_do for to_do in found)


def test_a_call_is_left_out() -> None:
    assert "update_targets" not in told()["leave `model.update_targets()` out"]


def test_a_call_that_another_object_has_is_added() -> None:
    cleared = LOOP.replace("other.step()", "other.step()\n            other.clear_grad()")
    found = told(cleared)["write `optimizer.clear_grad()` behind `loss = model(batch)`"]
    assert "loss = model(batch)\n        optimizer.clear_grad()\n" in found
    assert not any("`optimizer.clear_grad()`" in to_do for to_do in told())


def test_a_block_does_not_move_into_itself() -> None:
    found = told("""
def forward(self, x):
    if x.mean() > 0:
        self.count(x)
    return x
""")
    assert not any("write `if" in to_do for to_do in found)
    assert "leave `self.count(x)` out" in found


def test_a_call_that_the_reference_makes_of_its_object_is_lacking_before_and_behind_each_statement() -> None:
    reference = ast.parse("def train(a, x):\n    loss = a(x)\n    a.zero_grad()\n    loss.backward()\n    a.step()\n")
    tree = ast.parse("def minimise(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n").body[0]
    assert isinstance(tree, ast.FunctionDef)
    edits = [one for one in statement_edits(Code(tree, "p.py", "f"), theirs=[reference]) if one.is_as_theirs]
    assert [edit.to_do for edit in edits] == [
        "write `optimizer.clear_grad()` before `loss.backward()`",
        "write `optimizer.clear_grad()` behind `loss.backward()`",
        "write `optimizer.clear_grad()` behind `optimizer.step()`",
    ]
    assert ast.unparse(edits[0].edited.tree).splitlines()[1].strip() == "optimizer.clear_grad()"
    assert not any(one.is_as_theirs for one in statement_edits(Code(tree, "p.py", "f")))
