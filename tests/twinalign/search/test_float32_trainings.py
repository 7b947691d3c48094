"""A training that the case records in float32 alone is searched in float64; what a case accepts hides nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.test_whole_layers import written
from tests.twinalign.search.written_cases import edited
from twinalign.recorder.recorder import RunSettings
from twinalign.runs.run_stages import run
from twinalign.search.accepted import is_accepted
from twinalign.search.locator import LocateResult, locate
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE

pytestmark = pytest.mark.slow

CASE = """
from twinalign import Case
import numpy as np

def module(framework):
    if framework == "torch":
        import theirs
        return theirs
    import ours
    return ours

class Averaged(Case):
    name = "averaged"
    train_mode = True
    steps = 2
    accept = ("bn_running_var_biased",)

    def reference(self):
        import theirs
        return theirs.Net()

    def reproduced(self):
        import ours
        return ours.Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((6, 4), dtype="float32")}

    def loss(self, outputs, inputs, framework):
        return (outputs * outputs).mean()

    def optimizer(self, parameters, framework):
        return module(framework).optimizer(parameters)

    def train(self, framework, model, record, steps):
        batches = [np.random.default_rng(n).standard_normal((6, 4)).astype("float32") for n in range(steps or 4)]
        module(framework).fit(model, batches, record)
        return {}
"""
REFERENCE = """
import torch
from torch import nn

RATE = 0.05
SCALES = (0.5, 2.0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x * SCALES[0])))) * SCALES[1]

def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=RATE)

class Average:
    def __init__(self, model, decay=0.9, warmup=10):
        self.decay, self.warmup, self.step = decay, warmup, 0
        self.kept = {name: value.detach().clone() for name, value in model.named_parameters()}

    def update(self, model):
        self.step += 1
        decay = min(self.decay, (1 + self.step) / (self.warmup + self.step))
        for name, value in model.named_parameters():
            self.kept[name].mul_(decay).add_(value.detach(), alpha=1 - decay)

def fit(model, batches, record):
    model.train()
    making, average = optimizer(model.parameters()), Average(model)
    for batch in batches:
        loss = model(torch.as_tensor(batch)).square().mean()
        making.zero_grad()
        loss.backward()
        making.step()
        average.update(model)
        record("loss", float(loss))
        record("kept", sum(float(value.square().sum()) for value in average.kept.values()))
"""
PORT = """
import paddle
from paddle import nn
from paddle.nn import functional as F

RATE = 0.05
SCALES = (0.5, 2.0)

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1D(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(F.relu(self.norm(self.first(x * SCALES[0])))) * SCALES[1]

def optimizer(parameters):
    return paddle.optimizer.SGD(RATE, parameters=parameters)

def trained(model):
    return [(name, value) for name, value in model.named_parameters() if not value.stop_gradient]

class Average:
    def __init__(self, model, decay=0.9, warmup=10):
        self.decay, self.warmup, self.step = decay, warmup, 0
        self.kept = {name: value.detach().clone() for name, value in trained(model)}

    def update(self, model):
        self.step += 1
        decay = min(self.decay, (1 + self.step) / (self.warmup + self.step))
        for name, value in trained(model):
            self.kept[name] = self.kept[name] * decay + value.detach() * (1 - decay)

def fit(model, batches, record):
    model.train()
    making, average = optimizer(model.parameters()), Average(model)
    for batch in batches:
        loss = model(paddle.to_tensor(batch)).square().mean()
        making.clear_grad()
        loss.backward()
        making.step()
        average.update(model)
        record("loss", float(loss))
        record("kept", sum(float(value.square().sum()) for value in average.kept.values()))
"""


def found(folder: Path, *edits: tuple[str, str], case: str = CASE) -> LocateResult:
    written(folder, edited(PORT, edits), case, REFERENCE)
    return locate(RunSettings(str(folder / "case.py"), folder / "out"))


def test_the_right_port_has_nothing_but_what_the_case_accepts(tmp_path: Path) -> None:
    result = found(tmp_path)
    assert result.verdict == ALIGNED, [fault.to_json() for fault in result.counted]
    assert not result.not_searched


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        (
            "min(self.decay,",
            "max(self.decay,",
            "train",
            "`max(self.decay, (1 + self.step) / (self.warmup + self.step))`",
        ),
        ("* decay + value.detach() * (1 - decay)", "* (1 - decay) + value.detach() * decay", "train", "(1 - decay)"),
        ("warmup=10", "warmup=1", "train", "`1` in place of `10`"),
        # A constant of the module's, which the line that reads it does not show.
        ("RATE = 0.05", "RATE = 0.5", "optimizer", ""),
        ("SCALES = (0.5, 2.0)", "SCALES = (0.5, 2.5)", "", "`SCALES` is `(0.5, 2.5)` in place of `(0.5, 2.0)`"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, place: str, words: str, tmp_path: Path) -> None:
    result = found(tmp_path, (old, new))
    assert result.verdict == DIVERGED
    (fault,) = result.counted
    assert fault.paddle_layer == place
    assert fault.explanation is not None
    assert words in fault.explanation.text


def test_a_training_that_does_not_run_in_float64_is_said_to_be_not_searched(tmp_path: Path) -> None:
    refusing = 'if model.parameters()[0].dtype == paddle.float64: raise ValueError("no float64")'
    edits = [("    model.train()", f"    model.train()\n    {refusing}"), ("warmup=10", "warmup=1")]
    written(tmp_path, edited(PORT, edits), CASE, REFERENCE)
    result = run(RunSettings(str(tmp_path / "case.py"), tmp_path / "out")).located
    assert result is not None
    assert result.verdict == INCONCLUSIVE
    assert result.not_searched["training"].startswith(
        "train does not run in float64, in which its first steps are searched; give its batches the dtype of the model"
    )
    assert "no float64" in result.not_searched["training"]


def test_a_fault_of_the_training_stands_beside_what_is_accepted(tmp_path: Path) -> None:
    result = found(tmp_path, ("warmup=10", "warmup=1"))
    assert [fault.paddle_layer for fault in result.faults if is_accepted(fault)] in ([], ["norm"])
    refused = tmp_path / "refused"
    refused.mkdir()
    beside = found(refused, ("warmup=10", "warmup=1"), case=CASE.replace('accept = ("bn_running_var_biased",)', ""))
    assert [fault.paddle_layer for fault in beside.counted][:1] == ["norm"]
