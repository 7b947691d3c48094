"""Layers that take concatenated, or return stacked, what their partners take and return in several tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.test_whole_layers import written
from tests.twinalign.search.written_cases import edited, faults_of

pytestmark = pytest.mark.slow

CASE = """
from twinalign import Case

class Pairs(Case):
    name = "pairs"

    def reference(self):
        import theirs
        return theirs.Agent()

    def reproduced(self):
        import ours
        return ours.Agent()

    def inputs(self, rng):
        return {"x": rng.standard_normal((5, 4), dtype="float32"), "y": rng.standard_normal((5, 2), dtype="float32")}
"""
REFERENCE = """
import torch
from torch import nn

class Judges(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1)) for _ in range(2))

    def forward(self, x, y):
        both = torch.cat([x, y], 1)
        return self.first(both).squeeze(1), self.second(both).squeeze(1)

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)))

class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.judges, self.policy = Judges(), Policy()

    def forward(self, x, y):
        one, other = self.judges(x, self.policy(x) + y)
        return torch.minimum(one, other)
"""
PORT = """
import paddle
from paddle import nn

class Judge(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1))

    def forward(self, x, y):
        return self.layers(paddle.concat([x, y], 1)).squeeze(1)

class Judges(nn.Layer):
    def __init__(self):
        super().__init__()
        self.members = nn.LayerList([Judge(), Judge()])

    def forward(self, x, y):
        return paddle.stack([judge(x, y) for judge in self.members])

class Policy(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.outer(nn.functional.relu(self.inner(x)))

class Agent(nn.Layer):
    def __init__(self):
        super().__init__()
        self.judges, self.policy = Judges(), Policy()

    def forward(self, x, y):
        return self.judges(x, self.policy(x) + y).min(0)
"""


@pytest.mark.parametrize(
    ("right", "wrong", "place"),
    [("functional.relu(", "functional.gelu(", "policy"), (".min(0)", ".max(0)", "")],
)
def test_one_fault_elsewhere_is_the_only_one(right: str, wrong: str, place: str, tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, edited(PORT, [(right, wrong)]), CASE, REFERENCE), stages=("forward",))
    assert fault.paddle_layer == place
    assert fault.explanation is not None, fault.evidence


def test_a_right_port_has_none(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, PORT, CASE, REFERENCE)) == []
