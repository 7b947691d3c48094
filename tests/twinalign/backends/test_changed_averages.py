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


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(2, 3), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x))


@pytest.mark.parametrize("loads", [False, True])
def test_the_average_may_be_a_copy_of_the_model_whose_statistics_the_loop_copies(loads: bool) -> None:
    """Averaged in place of that, they are 0.5 of the old and of the new ones."""
    torch.manual_seed(0)
    model, batch = Normed(), torch.randn(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with averaging(buffers=True)(model):
        if loads:
            average = Normed()
            average.load_state_dict(model.state_dict())
        else:
            average = copy.deepcopy(model)
        began = average.norm.running_var.clone()
        model(batch).sum().backward()
        optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                ours.mul_(0.5).add_(theirs, alpha=0.5)
            for ours, theirs in zip(average.buffers(), model.buffers(), strict=True):
                ours.copy_(theirs)
        average.eval()(batch)
    assert not torch.allclose(began, model.norm.running_var)
    assert torch.allclose(average.norm.running_var, 0.5 * (began + model.norm.running_var))
