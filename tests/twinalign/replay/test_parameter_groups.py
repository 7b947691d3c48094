"""Conditions of the reference that choose parameters, in the port's place."""

from __future__ import annotations

import ast

import pytest

from twinalign.replay.aligned_code import parsed
from twinalign.replay.parameter_groups import other_choices, other_groups


@pytest.mark.parametrize(
    ("port", "reference", "wanted"),
    [
        (
            "def make(params):\n    return [q for q in params if 'bias' not in q.name]",
            "def make(model):\n    return [p for name, p in model.named_parameters() if p.ndim > 1]",
            ["q.ndim > 1", "q.ndim <= 1"],
        ),
        (
            "def make(params):\n    return Own(params, decays=lambda p: 'norm' not in p.name)",
            "def make(every):\n    for p_ in every:\n        if p_.ndim < 2 or p_.frozen:\n            left.append(p_)",
            ["p.ndim < 2 or p.frozen", "not (p.ndim < 2 or p.frozen)"],
        ),
        (
            "def make(params):\n    return [p for p in params]",
            "def make(ps):\n    return [p for p in ps if p.ndim]",
            [],
        ),
    ],
)
def test_the_references_condition_and_its_opposite_are_tried(port: str, reference: str, wanted: list[str]) -> None:
    code = parsed(port, "port.py", 1, "make", "paddle")
    assert code is not None
    found = list(other_choices([code], [ast.parse(reference)]))
    assert [ast.unparse(one.new) for one in found] == wanted


def test_a_group_gets_the_settings_that_the_reference_gives_it() -> None:
    code = parsed(
        "def make(a, b):\n    return SGD([{'params': a}, {'params': b, 'weight_decay': 0.1}])",
        "port.py",
        1,
        "make",
        "paddle",
    )
    reference = "def make(a, b, size=64):\n    for group in optimizer.param_groups[1:]:\n        group['lr'] *= 0.3"
    assert code is not None
    found = [ast.unparse(one.new) for one in other_groups([code], [ast.parse(reference)])]
    assert found == [
        "{'params': a, 'learning_rate': 0.3}",
        "{'params': b, 'weight_decay': 0.1, 'learning_rate': 0.3}",
        "{'params': a, 'weight_decay': 0.3}",
        "{'params': b, 'weight_decay': 0.3}",
    ]
