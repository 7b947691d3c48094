"""Layers that are right are not blamed for what their neighbours give them: in another layout, or computed twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.test_whole_layers import written
from tests.twinalign.search.written_cases import edited, faults_of
from twinalign.search.faults import Fault

pytestmark = pytest.mark.slow

CASE = """
from twinalign import Case

class Clouds(Case):
    name, train_mode, accept = "clouds", True, ("bn_running_var_biased",)

    def reference(self):
        import theirs
        return theirs.Net()

    def reproduced(self):
        import ours
        return ours.Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 6, 5, 3), dtype="float32")}
"""
GROUPED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8)

    def forward(self, x):
        x = ((x - x.mean(2, keepdim=True)) / 0.4).permute(0, 3, 1, 2)
        return torch.relu(self.norm(self.conv(x))).max(-1)[0].transpose(1, 2)
"""
OTHER_LAYOUT = """
import paddle
from paddle import nn

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.radius = 0.4
        self.mlp = nn.Sequential(nn.Conv2D(3, 8, 1, bias_attr=False), nn.BatchNorm2D(8), nn.ReLU())

    def forward(self, x):
        offsets = x - x.mean(2, keepdim=True)
        grouped = offsets / self.radius
        return self.mlp(grouped.transpose([0, 3, 2, 1])).max(2).transpose([0, 2, 1])
"""


def blamed(folder: Path, port: str, reference: str) -> list[Fault]:
    """But for what the case accepts."""
    found = faults_of(written(folder, port, CASE, reference))
    return [fault for fault in found if "accepted" not in fault.evidence]


def test_a_norm_in_another_layout_is_right_in_evaluation_mode(tmp_path: Path) -> None:
    wrong = edited(OTHER_LAYOUT, [("offsets / self.radius", "offsets")])
    (fault,) = blamed(tmp_path, wrong, GROUPED)
    assert (fault.paddle_layer, fault.phase) == ("", "forward")
    assert fault.explanation is not None


CROSSED = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, context):
        weights = (self.q(x) @ self.k(context).transpose(1, 2) / 8**0.5).softmax(-1)
        return self.out(weights @ self.v(context))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.cross, self.last = nn.Linear(3, 8), nn.LayerNorm(8), Attention(8), nn.LayerNorm(8)

    def forward(self, x):
        a, b = self.embed(x).flatten(1, 2).chunk(2, 1)
        na, nb = self.norm(a), self.norm(b)
        a, b = a + self.cross(na, nb), b + self.cross(nb, na)
        return self.last(a), self.last(b)
"""
READY = """
import paddle
from paddle import nn

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.end = nn.Linear(3, 8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.ca = nn.MultiHeadAttention(8, 1)

    def forward(self, x):
        x, y = self.embed(x).flatten(1, 2).chunk(2, 1)
        nx, ny = self.norm(x), self.norm(y)
        x = x + self.ca(nx, ny, ny)
        y = y + self.ca(ny, nx, nx)
        return self.end(x), self.end(y)
"""


def test_an_attention_that_is_given_one_value_twice_is_right(tmp_path: Path) -> None:
    """The values that the port gives it are those of two calls, of what it has changed by then."""
    wrong = edited(READY, [("self.ca(ny, nx, nx)", "self.ca(ny, self.norm(x), self.norm(x))")])
    (fault,) = blamed(tmp_path, wrong, CROSSED)
    assert (fault.paddle_layer, fault.phase) == ("", "forward")
    assert fault.explanation is not None
    assert "`self.norm(x)` in place of `nx`" in fault.explanation.text
    assert "in both places" in fault.explanation.text


@pytest.mark.parametrize(("port", "reference"), [(OTHER_LAYOUT, GROUPED), (READY, CROSSED)], ids=["layout", "twice"])
def test_the_right_ports_have_no_fault(port: str, reference: str, tmp_path: Path) -> None:
    assert blamed(tmp_path, port, reference) == []
