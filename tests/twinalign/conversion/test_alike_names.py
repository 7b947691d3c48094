"""Layers that only their names tell apart."""

from __future__ import annotations

import pytest

from twinalign.conversion.alike_names import in_order_of_names


@pytest.mark.parametrize(
    ("names", "others", "expected"),
    [
        (["m.horiz_skip", "m.horiz_resid"], ["b.to_residual", "b.to_skip"], ["b.to_skip", "b.to_residual"]),
        (["query", "key", "value"], ["k_proj", "v_proj", "q_proj"], ["q_proj", "k_proj", "v_proj"]),
        (["gateProj", "upProj"], ["up", "gate"], ["gate", "up"]),
        (["conv1", "conv2"], ["conv0", "conv1"], ["conv0", "conv1"]),
        (["fc1", "fc2"], ["second", "first"], ["second", "first"]),
        (["a"], ["b"], ["b"]),
    ],
)
def test_words_in_common_tell_layers_apart(names: list[str], others: list[str], expected: list[str]) -> None:
    assert in_order_of_names(names, others) == expected
