"""A head with a weight of its own where the reference uses the embedding's once more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of, in_paddle, written

PROVEN = {"weight_of_its_own"}
"""Ids of the causes that tests here find."""
REFERENCE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        x = self.norm(self.embed(x))
        return F.linear(x, self.embed.weight)
"""
RIGHT = in_paddle(REFERENCE, ("self.embed.weight)", "self.embed.weight.T)"))
UNTIED = edited(
    RIGHT,
    [
        ("        self.norm =", "        self.head = nn.Linear(8, 20, bias_attr=False)\n        self.norm ="),
        ("F.linear(x, self.embed.weight.T)", "self.head(x)"),
    ],
)
INPUTS = '{"x": rng.integers(0, 20, (3, 5))}'


@pytest.mark.parametrize(
    "code", ["F.linear(x, self.embed.weight)", "x @ self.embed.weight.t()", "x @ self.embed.weight.T"]
)
def test_a_weight_that_the_reference_has_not_is_named_with_the_one_it_uses(code: str, tmp_path: Path) -> None:
    reference = edited(REFERENCE, [("F.linear(x, self.embed.weight)", code)])
    (fault,) = faults_of(written(tmp_path, reference, UNTIED, INPUTS))
    assert fault.explanation is not None
    assert fault.explanation.id == "weight_of_its_own"
    assert (
        "where the reference uses another's once more: `head.weight` in place of `embed.weight`"
        in fault.explanation.text
    )
    assert (
        "use `embed.weight` once more, as the reference does, and build no layer for `head.weight`" in fault.suggestion
    )


def test_what_else_is_wrong_before_such_a_head_is_no_such_cause(tmp_path: Path) -> None:
    port = edited(UNTIED, [("self.head(x)", "self.head(x * x)")])
    (fault,) = faults_of(written(tmp_path, REFERENCE, port, INPUTS), explain_seconds=5)
    assert fault.explanation is None or fault.explanation.id != "weight_of_its_own"


def test_a_port_that_uses_the_weight_once_more_is_right(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, REFERENCE, RIGHT, INPUTS)) == []
