"""What a training loop may do with a model whose calls are watched."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from twinalign.backends import load_backend
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.stages.watching import run_training


def _model(framework: str) -> Any:
    if framework == "torch":
        import torch

        return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()), torch.ones
    import paddle

    return paddle.nn.Sequential(paddle.nn.Linear(2, 2), paddle.nn.Tanh()), paddle.ones


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_a_copied_model_runs_on_its_own(framework: str) -> None:
    """A moving average begins as a deep copy, which must not call the layers that it was copied from."""
    model, ones = _model(framework)
    copies = []

    def train(framework: str, model: Any, record: Any, steps: int | None) -> dict[str, Any]:
        average = copy.deepcopy(model)
        assign(average[0].weight, 0.0 * array(model[0].weight))
        assign(average[0].bias, 0.0 * array(model[0].bias))
        copies.append(float(average(ones([1, 2])).abs().sum()))
        copies.append(float(model(ones([1, 2])).abs().sum()))
        return {}

    backend = load_backend(framework)
    assign, array = backend.assign, backend.to_array
    curves = run_training(SimpleNamespace(train=train), framework, backend, model, CanonicalNames())
    assert copies[0] == 0.0 < copies[1]
    assert curves.points["batch_size"].tolist() == [1.0]  # the copy's call is none of the model's
    assert "forward" not in vars(model)


def test_a_number_is_assigned_to_a_parameter_without_axes() -> None:
    import numpy as np
    import paddle

    tensor = paddle.zeros([], "float64")
    load_backend("paddle").assign(tensor, np.array(2.5))
    assert (tensor.shape, tensor.item()) == ([], 2.5)
