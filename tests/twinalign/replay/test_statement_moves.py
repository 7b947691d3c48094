"""Moves of statements within a loop, and what is told of them."""

from __future__ import annotations

import ast

from twinalign.replay.statement_moves import moves

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


def told() -> dict[tuple[str, str], str]:
    tree = ast.parse(LOOP.strip()).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return {(move.statement, move.then): ast.unparse(move.tree) for move in moves(tree)}


def test_a_call_moves_across_the_next_one() -> None:
    found = told()["average.update(model)", "behind `optimizer.step()`"]
    assert found.index("average.update(model)") > found.index("optimizer.step()")


def test_a_call_moves_into_the_block_beside_it() -> None:
    found = told()["model.update_targets()", "inside of `if step % 2 == 0`, behind `other.step()`"]
    assert "        other.step()\n            model.update_targets()\n        record" in found


def test_a_call_moves_out_of_its_block() -> None:
    assert any(s == "other.step()" and then.startswith("outside of `if step % 2 == 0`") for s, then in told())


def test_nothing_is_read_before_it_is_made_and_records_stay() -> None:
    assert ("loss.backward()", "before `loss = model(batch)`") not in told()
    assert not any(statement.startswith("record") for statement, _ in told())
