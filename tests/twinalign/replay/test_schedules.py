"""Schedules that are asked for steps behind the end of the training."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from twinalign import Case
from twinalign.backends.torch import optimizers as backend
from twinalign.replay.optimizer import ask_schedule


class Polynomial(Case):
    steps = 4

    def schedule(self, optimizer: Any, step: int, framework: str) -> None:
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / self.steps) ** 0.9  # complex once it is below zero


def test_a_rate_that_is_no_number_behind_the_end_ends_the_schedule() -> None:
    optimizer = torch.optim.SGD([torch.ones(1)], lr=0.1)
    found = ask_schedule(Polynomial(), optimizer, backend, "torch")
    assert found == {"learning_rate": pytest.approx([0.1 * (1 - step / 4) ** 0.9 for step in range(5)])}


def test_a_rate_that_is_no_number_before_the_end_is_an_error() -> None:
    optimizer = torch.optim.SGD([torch.ones(1)], lr=0.1)
    case = types.SimpleNamespace(steps=9, schedule=Polynomial().schedule)
    with pytest.raises(TypeError, match="complex"):
        ask_schedule(case, optimizer, backend, "torch")  # type: ignore[arg-type]
