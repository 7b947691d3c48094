"""Functions of the port that decide which rate a group has are searched, where the schedule multiplies by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pooled import pooled_processes
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASE = """
import numpy as np

from twinalign import Case


class Layered(Case):
    name = "layered"

    def reference(self):
        import torch

        torch.manual_seed(0)
        return torch.nn.Sequential(*(torch.nn.Linear(5, 5) for _ in range(3)))

    def reproduced(self):
        import paddle

        return paddle.nn.Sequential(*(paddle.nn.Linear(5, 5) for _ in range(3)))

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 5), dtype="float32")}

    def loss(self, outputs, inputs, framework):
        return (outputs**2).mean()

    def optimizer(self, parameters, framework):
        if framework == "torch":
            from ref_of_groups import make
        else:
            from port_of_groups import make
        return make(list(parameters))

    def schedule(self, optimizer, step, framework):
        if framework == "torch":
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * (step + 1) * group["scale"]
        else:
            optimizer.set_lr(0.01 * (step + 1))
        return {}
"""
REFERENCE = """
import torch


def depth_of(number):
    block = number // 2
    return block + 1


def make(parameters):
    scales = [0.5 ** depth_of(number) for number in range(len(parameters))]
    groups = [{"params": [p], "lr": 0.01 * s, "scale": s} for p, s in zip(parameters, scales)]
    return torch.optim.Adam(groups)
"""
PORT = """
import paddle


def layer_id(place):
    return 3 - int(place / 2)


def make(parameters):
    groups = []
    for number, p in enumerate(parameters):
        groups.append({"params": [p], "learning_rate": 0.5 ** layer_id(number)})
    return paddle.optimizer.Adam(learning_rate=0.01, parameters=groups)
"""


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    with pooled_processes():
        yield


@pytest.mark.slow
def test_a_wrong_depth_is_found(tmp_path: Path) -> None:
    for name, text in (("case", CASE), ("ref_of_groups", REFERENCE), ("port_of_groups", PORT)):
        (tmp_path / f"{name}.py").write_text(text.lstrip())
    case = str(tmp_path / "case.py")
    (found,) = locate(RunSettings(case=case, out=tmp_path / "out", stages=("backward",))).faults
    assert found.explanation is not None, found.evidence
    assert found.explanation.evidence["lines_of_port"], found.explanation.text
