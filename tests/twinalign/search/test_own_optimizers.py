"""Optimizers that both sides write themselves: the port walks all parameters at once, the reference group by group."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.test_whole_layers import written
from tests.twinalign.search.written_cases import edited, faults_of
from twinalign.recorder.recorder import RunSettings
from twinalign.runs.run_stages import run

pytestmark = pytest.mark.slow

CASE = """
import numpy as np
from twinalign import Case

class Own(Case):
    name = "own"
    steps = 3
    float64_train_steps = 6

    def reference(self):
        import theirs
        return theirs.nn.Sequential(theirs.nn.Embedding(9, 4), theirs.nn.Linear(4, 3))

    def reproduced(self):
        import ours
        return ours.nn.Sequential(ours.nn.Embedding(9, 4), ours.nn.Linear(4, 3))

    def inputs(self, rng):
        return {"x": rng.integers(0, 9, (5, 2))}

    def loss(self, outputs, inputs, framework):
        return (outputs * outputs).mean()

    def optimizer(self, parameters, framework):
        return side(framework).make_optimizer(parameters)

    def train(self, framework, model, record, steps=None):
        module, drawn = side(framework), np.random.default_rng(1)
        optimizer = module.make_optimizer(model.parameters())
        for _ in range(steps or 6):
            outputs = model(module.tensor(drawn.integers(0, 9, (2, 2))))
            loss = (outputs * outputs).mean()
            loss.backward()
            optimizer.step()
            module.clear(optimizer)
            record("loss", float(loss))
        record("last", float(loss))
        return {}

def side(framework):
    import ours, theirs
    return theirs if framework == "torch" else ours
"""
REFERENCE = """
import torch
from torch import nn

tensor = torch.tensor

class Lazy(torch.optim.Optimizer):
    def __init__(self, groups, lr, beta=0.9):
        super().__init__(groups, dict(lr=lr, beta=beta, decay=0.0))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta = group["beta"]
            for p in group["params"]:
                state, g = self.state[p], p.grad
                if not state:
                    state["v"] = torch.ones_like(p)
                rows = g != 0
                state["v"] = torch.where(rows, beta * state["v"] + (1 - beta) * g**2, state["v"])
                p -= group["lr"] * (rows * g / state["v"].sqrt() + group["decay"] * p)

def make_optimizer(params):
    params = list(params)
    decays = [p for p in params if p.ndim > 1]
    others = [p for p in params if p.ndim <= 1]
    return Lazy([{"params": decays, "decay": 0.1}, {"params": others}], lr=0.2)

def clear(optimizer):
    optimizer.zero_grad()
"""
PORT = """
import paddle
from paddle import nn

tensor = paddle.to_tensor

class Lazy(paddle.optimizer.Optimizer):
    def __init__(self, parameters, learning_rate, beta=0.9, decays=None):
        super().__init__(learning_rate=learning_rate, parameters=parameters)
        self.beta, self.decays, self.state = beta, decays, {}

    @paddle.no_grad()
    def step(self):
        for p in self._parameter_list:
            state, g = self.state.setdefault(p.name, {}), p.grad
            if not state:
                state["v"] = paddle.ones_like(p)
            rows = g != 0
            state["v"] = paddle.where(rows, self.beta * state["v"] + (1 - self.beta) * g**2, state["v"])
            decay = 0.1 if self.decays(p) else 0.0
            p.set_value(p - self.get_lr() * (rows.astype(p.dtype) * g / state["v"].sqrt() + decay * p))

def make_optimizer(params):
    return Lazy(list(params), 0.2, decays=lambda p: p.ndim > 1)

def clear(optimizer):
    optimizer.clear_grad()
"""


@pytest.fixture(autouse=True)
def _names_alone() -> None:
    """Lines of causes with a name are sought, too."""


def found(tmp_path: Path, right: str, wrong: str, stage: str) -> list[str]:
    case = written(tmp_path, edited(PORT, [(right, wrong)]), CASE, REFERENCE)
    return [one.explanation.text if one.explanation else "" for one in faults_of(case, stages=(stage,))]


def test_the_line_inside_of_the_loops_is_told(tmp_path: Path) -> None:
    kept = 'self.beta * state["v"] + (1 - self.beta) * g**2'
    (text,) = found(tmp_path, f'paddle.where(rows, {kept}, state["v"])', kept, "train")
    assert "line 19 of ours.py" in text
    assert "where(rows" in text


def test_the_condition_that_chooses_is_told(tmp_path: Path) -> None:
    (text,) = found(tmp_path, "p.ndim > 1", "'bias' not in p.name", "backward")
    assert "`'bias' not in p.name` in place of `p.ndim > 1`, line 24 of ours.py" in text


def test_a_factor_of_the_rate_inside_of_the_step_is_no_fault(tmp_path: Path) -> None:
    port = edited(PORT, [("self.get_lr() *", "0.5 * self.get_lr() *"), ("list(params), 0.2", "list(params), 0.4")])
    case = written(tmp_path, port, CASE, REFERENCE)
    result = run(RunSettings(str(case), tmp_path / "out"))
    assert result.verdict == "aligned", {name: stage.verdict for name, stage in result.stages.items()}
    assert faults_of(case) == []


def test_a_wrong_setting_is_told_and_not_the_line_that_uses_it(tmp_path: Path) -> None:
    (text,) = found(tmp_path, "0.2, decays", "0.2, beta=0.8, decays", "backward")
    kept = "decays=lambda p: p.ndim > 1)`"
    assert f"`Lazy(list(params), 0.2, beta=0.8, {kept} in place of `Lazy(list(params), 0.2, {kept}, line 24" in text
