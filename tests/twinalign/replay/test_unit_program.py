"""Which calls of a unit lead to what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tests.twinalign.causes.module_unit import ModuleUnit
from tests.twinalign.causes.units import explain
from twinalign.causes.layers.subject import LayerSubject


class TwoLayers(nn.Module):
    """Each layer is given something of its own; the second one's is turned round inside of a layer without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.turning = nn.Linear(4, 4), nn.Linear(4, 4), nn.Tanh()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = self.first(x.sin())
        b = self.second(self.turning(y).cos() * a)
        return a.exp() + b.square()


def subject_of(port: str) -> LayerSubject:
    rng = np.random.default_rng(0)
    unit = ModuleUnit(TwoLayers(), [rng.standard_normal((3, 4)) for _ in range(2)], {}, forced=("first", "second"))
    values = unit.run()
    unit.port = {**values, port: values[port] + 1.0}
    unit.reference, unit.held = values, frozenset(values) - {port}
    return LayerSubject(unit)


@pytest.mark.parametrize(
    ("wrong", "leading", "others"),
    [
        ("input.first#0.0", {"sin"}, {"tanh", "cos", "mul", "exp", "square", "add"}),
        ("input.second#0.0", {"tanh", "cos", "mul"}, {"sin", "exp", "square", "add"}),
        ("output.0", {"exp", "square", "add"}, {"sin", "tanh", "cos", "mul"}),
    ],
)
def test_what_leads_to_right_values_alone_is_not_tried(wrong: str, leading: set[str], others: set[str]) -> None:
    names = {key[0] for key in subject_of(wrong).program.leading}
    assert leading <= names
    assert names.isdisjoint(others)


def test_what_two_layers_are_given_in_each_others_place_is_said() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.joined = nn.Bilinear(4, 4, 2)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.joined(x.sin(), y.cos())
            return found

    rng = np.random.default_rng(0)
    unit = ModuleUnit(Pair(), [rng.standard_normal((3, 4)) for _ in range(2)], {}, forced=("joined",))
    values = unit.run()
    unit.port = {"input.joined#0.0": values["input.joined#0.1"], "input.joined#0.1": values["input.joined#0.0"]}
    unit.reference = {name: values[name] for name in unit.port}
    explanation = explain(unit)
    assert explanation is not None
    assert explanation.text.endswith("`layer joined`: `input.0` and `input.1` are exchanged")
