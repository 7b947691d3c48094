"""Settings of single parameters, read off what they are after a step."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from twinalign.replay.own_settings import in_groups, of_kinds, read_off, unseen_beside

PORT = {"a": 0.3, "b": 0.125, "c": 0.1}
OWN = dict.fromkeys(PORT, 0.1)


def left(values: Mapping[str, float]) -> dict[str, float]:
    """What is left of sizes that are no linear function of the setting."""
    return {name: (1 - values[name]) ** 2 - (1 - PORT[name]) ** 2 for name in PORT}


def test_values_of_others_are_taken_and_the_rest_is_read_off() -> None:
    found = read_off(OWN, ["a", "b"], [0.1, 0.3], left, dict.fromkeys(PORT, 1e-12))
    assert found == {"a": 0.3, "b": 0.125}


@pytest.mark.parametrize("stuck", [1.0, float("nan")])
def test_where_the_setting_changes_nothing_none_is_found(stuck: float) -> None:
    assert read_off(OWN, ["a"], [], lambda values: dict.fromkeys(PORT, stuck), dict.fromkeys(PORT, 1e-12)) is None


def test_a_parameter_that_the_first_step_does_not_move_is_taken_with_its_kind() -> None:
    own = {"a.weight": 0.5, "a.bias": 0.0, "b.bias": 0.0}
    found = list(unseen_beside(own, {"a.bias": 0.5}, lambda name: name.endswith("bias")))
    assert found == [{"a.bias": 0.5}, {"a.bias": 0.5, "b.bias": 0.5}]
    assert list(unseen_beside(own, {"a.bias": 0.5, "b.bias": 0.4}, len)) == [{"a.bias": 0.5, "b.bias": 0.4}]


def test_a_kind_has_the_values_that_none_of_its_parameters_refutes() -> None:
    kinds = {"a": "x", "b": "x", "c": "y"}
    assert of_kinds(kinds, [0.1, 0.3], lambda value: ["a"] if value == 0.1 else ["c"]) == {"x": [0.3], "y": [0.1]}


def test_parameters_stand_together_by_both_values() -> None:
    assert in_groups(OWN, {"a": 0.3, "c": 0.3}) == {(0.1, 0.3): ["a", "c"]}
