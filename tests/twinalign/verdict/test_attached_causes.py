"""Causes between attached trainers, on steps whose values numpy and torch compute here."""

from typing import Any

import numpy as np
import pytest
import torch

from twinalign.verdict.attached_average_causes import averages
from twinalign.verdict.attached_evidence import Sides
from twinalign.verdict.attached_model_causes import optimizers_order
from twinalign.verdict.attached_rank_causes import find_rank_causes
from twinalign.verdict.attached_steps import Step
from twinalign.verdict.attached_update_causes import running_variance

RANDOM = np.random.RandomState(0)


def sides(reference: list[Step], port: list[Step]) -> Sides:
    return Sides(reference, port, ([], []))


def averaged(decay: float, late: bool = True) -> list[Step]:
    random = np.random.RandomState(1)
    weights = random.randn(40).astype(np.float32)
    average, steps = weights + 0.1 * random.randn(40).astype(np.float32), []
    for number in range(3):
        updated = weights + 0.01 * random.randn(40).astype(np.float32)
        arrays = {"weights.net:w": weights, "updated.net:w": updated, "untrained.ema:w": average}
        steps.append(Step(number, arrays, {}))
        average = (decay * average + (1 - decay) * (updated if late else weights)).astype(np.float32)
        weights = updated
    return steps


@pytest.mark.parametrize(
    ("decay", "late", "cause"),
    [
        (0.99, True, None),
        (0.9, True, "average_decay"),
        (0.99, False, "average_before_update"),
        (1.0, True, "average_never_moves"),
    ],
)
def test_moving_averages(decay: float, late: bool, cause: str | None) -> None:
    found = next(averages(sides(averaged(0.99), averaged(decay, late))), None)
    assert (found and found["id"]) == cause


def normalised(biased: bool) -> list[Step]:
    layer, steps = torch.nn.BatchNorm1d(6), []
    random = np.random.RandomState(2)
    for number in range(2):
        batch = random.randn(10, 6).astype(np.float32) * np.arange(1, 7, dtype=np.float32)
        before = layer.running_var.clone()
        layer(torch.from_numpy(batch))
        if biased:
            layer.running_var.copy_(0.9 * before + 0.1 * torch.from_numpy(batch.var(0)))
        steps.append(Step(number, {"buffer.running_var": layer.running_var.numpy().copy()}, {}))
    return steps


def test_running_variances_of_the_batch_are_told_from_others() -> None:
    found = next(running_variance(sides(normalised(False), normalised(True))))
    assert found["id"] == "bn_running_var_biased"
    other = normalised(False)
    for step in other:
        step.arrays["buffer.running_var"] = step.arrays["buffer.running_var"] * 1.1
    assert next(running_variance(sides(normalised(False), other)), None) is None


@pytest.mark.parametrize(("kind", "factor"), [("own", 1.0), ("summed", 2.0), ("divided", 0.5)])
def test_gradients_of_ranks(kind: str, factor: float) -> None:
    own = [RANDOM.randn(30), RANDOM.randn(30)]
    mean = sum(own) / 2

    def ranks(gradients: list[Any]) -> list[list[Step]]:
        return [[Step(0, {"gradient.w": gradient}, {}) for gradient in gradients]]

    port = own if kind == "own" else [mean * factor] * 2
    found = find_rank_causes(ranks([mean, mean]), ranks(port))
    assert [(cause["id"], cause["evidence"]["factor"]) for cause in found] == [("rank_gradient_average", factor)]
    assert find_rank_causes(ranks([mean, mean]), ranks([mean, mean])) == []


def test_optimizers_in_another_order() -> None:
    first, second = ({"settings": {f"{name}:w": {}}} for name in ("G", "D"))
    found = next(optimizers_order(sides([Step(0, {}, first)], [Step(0, {}, second)])))
    assert "is of D in the port, of G in the reference" in found["text"]
    assert next(optimizers_order(sides([Step(0, {}, first)], [Step(0, {}, first)])), None) is None
