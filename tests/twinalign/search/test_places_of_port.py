"""Where a port that is written in its own way goes wrong, in a whole search."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.test_edits_of_port import CASE
from tests.twinalign.search.test_whole_layers import written
from tests.twinalign.search.written_cases import edited, faults_of

pytestmark = pytest.mark.slow

REFERENCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.start, self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, ids, x):
        y = torch.tanh(self.start(x))
        mask = (ids > 0).to(x.dtype)
        rows = (y[:, :5] * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
        return torch.minimum(self.first(y), 2 * self.second(y)) + rows
"""
PORT = """
import paddle
from paddle import nn

class Pair(nn.Layer):
    def __init__(self):
        super().__init__()
        self.base, self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, ids, x):
        values = paddle.tanh(self.base(x))
        seen = ids.astype("bool").astype(x.dtype)
        total = paddle.sum(values[:, :5] * seen, axis=1).unsqueeze(1)
        count = seen.sum(axis=1).unsqueeze(1)
        left = self.one(values)
        right = self.two(values)
        return total / count + paddle.minimum(left, right * 2)

def Net():
    return Pair()
"""


def test_another_layer_of_the_same_class_is_called(tmp_path: Path) -> None:
    wrong = edited(PORT, [("right = self.two(values)", "right = self.one(values)")])
    (fault,) = faults_of(written(tmp_path, wrong, CASE, REFERENCE), stages=("forward",))
    assert fault.explanation is not None, fault.evidence
    assert "`self.one` in place of `self.two`, line 16 of ours.py" in fault.explanation.text
    assert fault.suggestion.endswith("near ours.py:16: write `self.two` in place of `self.one`")


def test_what_the_reference_computes_is_written_where_it_goes_wrong(tmp_path: Path) -> None:
    edits = [(".sum(axis=1).unsqueeze(1)", ".sum()"), ("* seen, axis=1).unsqueeze(1)", "* seen)")]
    (fault,) = faults_of(written(tmp_path, edited(PORT, edits), CASE, REFERENCE), stages=("forward",))
    assert fault.explanation is not None, fault.evidence
    assert fault.explanation.text == (
        "a line of the port computes something else: `total / count` in place of "
        "`(values[:, :5] * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True)`, line 17 of ours.py"
    )


def test_the_right_port_has_no_fault(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, PORT, CASE, REFERENCE), stages=("backward",)) == []
