"""The port's values of a layer's own attributes, one by one and all at once."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from torch import nn

from twinalign.replay.port_attributes import attributes_of


class Causal(nn.Conv1d):
    """Pads on the left alone, by as much as its dilation needs."""

    def __init__(self, dilation: int) -> None:
        super().__init__(2, 2, 3, dilation=dilation)
        self.left = 2 * dilation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.pad(x, (self.left, 0)))


def details(module: nn.Module, **facts: Any) -> list[str]:
    return [one.detail for one in attributes_of(module, types.SimpleNamespace(facts=facts))]  # type: ignore[arg-type]


def test_what_a_constructor_makes_of_one_argument_is_tried_together() -> None:
    layer = Causal(4)
    *single, both = attributes_of(layer, types.SimpleNamespace(facts={"left": 2, "dilation": [1]}))  # type: ignore[arg-type]
    assert [one.detail for one in single] == ["`left` is 2 in place of 8", "`dilation` is (1,) in place of (4,)"]
    assert both.detail == "`left` is 2 in place of 8; `dilation` is (1,) in place of (4,)"
    x = torch.randn(1, 2, 9)
    right = Causal(1)
    right.load_state_dict(layer.state_dict())
    with both.apply():
        torch.testing.assert_close(layer(x), right(x))
    with single[0].apply(), pytest.raises(AssertionError):
        torch.testing.assert_close(layer(x), right(x))


def test_a_number_that_stands_for_all_axes_is_no_other_value() -> None:
    assert details(Causal(4), padding=0, stride=[1], groups=1) == []
    assert details(Causal(4), padding=1) == ["`padding` is 1 in place of (0,)"]
