"""Weights that lead out of a model's domain tell nothing of its metric."""

from __future__ import annotations

import torch

from twinalign.backends import load_backend
from twinalign.stages.metric import _watched


class Root(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sqrt()


def test_nan_of_a_layer_is_noticed_behind_one_that_takes_it_away() -> None:
    model = torch.nn.Sequential(Root(), torch.nn.Softplus())
    known = load_backend("torch")

    def in_domain(values: list[float]) -> bool:
        with _watched(known, model) as is_in_domain:
            torch.nan_to_num(model(torch.tensor(values)))
        return is_in_domain()

    assert in_domain([0.0, 4.0])
    assert not in_domain([-1.0, 4.0])
    assert in_domain([float("inf"), 4.0])
