"""Schedules of both twins against the official release's, at many points of its recipes."""

from __future__ import annotations

from argparse import Namespace
from itertools import pairwise

import numpy as np
import pytest

PRETRAINING = (
    "resnet50_100ep",
    "resnet50_300ep",
    "resnet50_1000ep",
    "vit_small_300ep_b1024",
    "vit_base_300ep_b4096",
    "vit_small_no_m_cos",
)


def current_rate(twin, optimizer) -> float:
    return optimizer.param_groups[0]["lr"] if twin.is_torch else optimizer.get_lr()


def build(twin):
    parameter = twin.parameter(np.ones((2, 2)))
    return twin.module("training.optimizer").build_optimizer("sgd", [parameter], 1.0, 0.0)


@pytest.mark.parametrize("recipe", PRETRAINING)
def test_pretraining_equals_official_schedule(twin, golden_figures, recipe: str) -> None:
    schedule, figures = twin.module("training.schedule"), golden_figures("schedules.json")[recipe]
    args = Namespace(
        lr=figures["scaled_lr"],
        epochs=figures["epochs"],
        warmup_epochs=figures["warmup_epochs"],
        moco_m=figures["moco_m"],
    )
    optimizer = build(twin)
    assert len(figures["rows"]) == 50
    for epoch, iteration, fractional, learning_rate, momentum in figures["rows"]:
        now = epoch + iteration / figures["iters_per_epoch"]
        assert now == pytest.approx(fractional, rel=1e-15)
        assert schedule.adjust_learning_rate(optimizer, now, args) == pytest.approx(learning_rate, rel=1e-12, abs=1e-18)
        assert current_rate(twin, optimizer) == pytest.approx(learning_rate, rel=1e-12, abs=1e-18)
        if "--moco-m-cos" in figures["cli"]:
            assert schedule.adjust_moco_momentum(now, args) == pytest.approx(momentum, rel=1e-13)


@pytest.mark.parametrize("recipe", ["lincls_resnet50", "lincls_vit_small"])
def test_linear_probe_equals_official_schedule(twin, golden_figures, recipe: str) -> None:
    schedule, figures = twin.module("training.schedule"), golden_figures("schedules.json")[recipe]
    args = Namespace(lr=figures["init_lr"], epochs=figures["epochs"], warmup_epochs=0)
    optimizer = build(twin)
    for epoch, learning_rate in figures["rows"]:
        assert schedule.adjust_learning_rate(optimizer, epoch, args) == pytest.approx(learning_rate, rel=1e-12)


def test_first_iteration_has_rate_zero_and_an_iteration_late_is_seen(twin) -> None:
    schedule, optimizer = twin.module("training.schedule"), build(twin)
    args = Namespace(lr=1.0, epochs=10, warmup_epochs=2, moco_m=0.99)
    rates = [schedule.adjust_learning_rate(optimizer, step / 5, args) for step in range(50)]
    assert rates[0] == 0.0
    assert rates[10] == 1.0
    assert all(earlier != later for earlier, later in pairwise(rates))
    assert schedule.adjust_moco_momentum(0, args) == pytest.approx(0.99)
    assert schedule.adjust_moco_momentum(10, args) == 1.0
