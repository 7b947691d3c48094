"""An edit has to hold where the recorded values do not show it: on other gradients, other splits, in the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.test_whole_layers import written
from tests.twinalign.search.written_cases import edited, faults_of
from twinalign.search.faults import Fault

pytestmark = pytest.mark.slow

CASE = """
from twinalign import Case
import numpy as np

class Clipped(Case):
    name = "clipped"
    steps = 4
    size = 1.0
    data_samples = 4
    float64_train_steps = 6

    def reference(self):
        import theirs
        return theirs.Net()

    def reproduced(self):
        import ours
        return ours.Net()

    def inputs(self, rng):
        self.calls = rng.bit_generator.seed_seq.entropy[1]
        return {"x": rng.standard_normal((4, 6), dtype="float32") * (self.size if self.calls else 1.0)}

    def loss(self, outputs, inputs, framework):
        return (outputs * outputs).mean()

    def optimizer(self, parameters, framework):
        if framework == "torch":
            import theirs
            return theirs.build(parameters)
        import ours
        return ours.build(parameters)

    def dataset(self, framework, split):
        import importlib
        places = [0, 0, 0, 0] if split == "train" else [1, 2, 3, 1]
        roll = importlib.import_module("theirs" if framework == "torch" else "ours").rolled
        return [{"order": roll(np.random.default_rng(n).permutation(5), place)} for n, place in enumerate(places)]

    def train(self, framework, model, record, steps=None):
        optimizer = self.optimizer(list(model.parameters()), framework)
        for number in range(steps or 6):
            x = np.random.default_rng(number).standard_normal((4, 6))
            if framework == "torch":
                import torch
                x = torch.as_tensor(x, dtype=next(model.parameters()).dtype)
            else:
                import paddle
                x = paddle.to_tensor(x, dtype=model.parameters()[0].dtype)
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad() if framework == "torch" else optimizer.clear_grad()
            record("loss", float(loss))
        return {}
"""
REFERENCE = """
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, x):
        return self.layers(x)

def build(parameters, most=3.0):
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def clip(optimizer, args, kwargs):
        grads = [p.grad for p in parameters if p.grad is not None]
        norm = torch.sqrt(sum((g * g).sum() for g in grads))
        scale = torch.clamp(most / (norm + 1e-6), max=1.0)
        for g in grads:
            g.mul_(scale)

    optimizer.register_step_pre_hook(clip)
    return optimizer

def rolled(order, place):
    return np.roll(order, -place) + place
"""
PORT = """
import numpy as np
import paddle
from paddle import nn

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, x):
        return self.layers(x)

class Clip(nn.clip.ClipGradBase):
    def __init__(self, most):
        super().__init__()
        self.most = most

    def _dygraph_clip(self, params_grads):
        grads = [g for _, g in params_grads if g is not None]
        norm = paddle.sqrt(sum((g * g).sum() for g in grads))
        scale = paddle.clip(self.most / (norm + 1e-6), max=1.0)
        return [(p, g if g is None else g * scale) for p, g in params_grads]

    def __call__(self, params_grads):
        return self._dygraph_clip(params_grads)

def build(parameters, most=3.0):
    return paddle.optimizer.SGD(0.1, parameters=parameters, grad_clip=Clip(most))

def rolled(order, place):
    return np.roll(order, -place) + place
"""
NORM = "norm = paddle.sqrt(sum((g * g).sum() for g in grads))"


def found(folder: Path, right: str, wrong: str, case: str = CASE, stages: tuple[str, ...] = ()) -> list[Fault]:
    return faults_of(written(folder, edited(PORT, [(right, wrong)]), case, REFERENCE), stages=stages)


def test_a_clip_that_the_recorded_gradients_do_not_reach_is_mended_for_those_that_do(tmp_path: Path) -> None:
    # Of this case the norm is always below the bound and the sum of the norms above it: any edit that clips nothing
    # makes all that is recorded right, and the training as well.
    bound = [("most=3.0", "most=0.9")]
    wrong = "norm = sum(paddle.sqrt((g * g).sum()) for g in grads)"
    port = edited(PORT, [(NORM, wrong), *bound])
    faults = faults_of(written(tmp_path, port, CASE, edited(REFERENCE, bound)), stages=("backward", "train"))
    assert [fault.phase for fault in faults] == ["optimizer"]  # the training follows from it
    explanation = faults[0].explanation
    assert explanation is not None
    assert "paddle.sqrt(sum(((g * g).sum() for g in grads)))" in explanation.text


def test_a_clip_that_binds_in_a_later_step_is_located(tmp_path: Path) -> None:
    case = edited(CASE, [("size = 1.0", "size = 30.0")])
    faults = found(tmp_path, NORM, "norm = sum((g * g).sum() for g in grads)", case, ("backward",))
    assert [fault.phase for fault in faults] == ["optimizer"]
    assert "shows on the inputs of step 1, and not on those of the steps before" in faults[0].evidence["notes"]
    assert faults[0].explanation is not None
    assert "paddle.sqrt(sum(((g * g).sum() for g in grads)))" in faults[0].explanation.text


def test_an_edit_of_a_dataset_holds_for_all_splits(tmp_path: Path) -> None:
    faults = found(tmp_path, "np.roll(order, -place)", "np.roll(order, 1 - place)", stages=("data",))
    assert [fault.reference_layer for fault in faults] == ["dataset.train", "dataset.val"]
    texts = {fault.explanation.text for fault in faults if fault.explanation is not None}
    assert len(texts) == 1
    assert "`1 - place` in place of `-place`" in texts.pop()
