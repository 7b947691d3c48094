"""The moving average of a training is found and changed, whatever the optimizer holds."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from twinalign.backends.torch.reference_only.changed_averages import averaging


@pytest.mark.parametrize("holds_all", [False, True])
def test_an_average_that_the_optimizer_holds_frozen_is_one(holds_all: bool) -> None:
    model = nn.ModuleDict({"student": nn.Linear(2, 1)})
    model["teacher"] = copy.deepcopy(model["student"]).requires_grad_(False)
    held = model if holds_all else model["student"]
    optimizer = torch.optim.SGD(held.parameters(), lr=1.0)
    began = model["teacher"].weight.clone()
    with averaging(lambda step, own: 0.0)(model):  # it is a copy
        model["student"](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            for average, parameter in zip(model["teacher"].parameters(), model["student"].parameters(), strict=True):
                average.mul_(0.9).add_(parameter, alpha=0.1)
    assert not torch.equal(model["teacher"].weight, began)
    assert torch.allclose(model["teacher"].weight, model["student"].weight)
