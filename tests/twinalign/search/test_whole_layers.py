"""A layer that the port writes in its own way: the edit inside of it that gives what the reference's gives is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of

pytestmark = pytest.mark.slow

CASE = """
from twinalign import Case
import numpy as np

class Whole(Case):
    name = "whole"

    def reference(self):
        import theirs
        return theirs.Net()

    def reproduced(self):
        import ours
        return ours.Net()

    def inputs(self, rng):
        durations = np.array([[2, 1, 3], [1, 2, 1]])
        return {"x": rng.standard_normal((2, 3, 4), dtype="float32"), "durations": durations}
"""
REFERENCE = """
import torch
from torch import nn

class Gate(nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        return torch.tanh(a) * torch.sigmoid(b)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(4, 8)
        self.gate_skip, self.gate_residual = nn.Linear(4, 4), nn.Linear(4, 4)
        self.gate = Gate()

    def forward(self, x, durations):
        out = self.gate(self.enter(x))
        skip = self.gate_skip(out)
        out = self.gate_residual(out)
        rows = [torch.repeat_interleave(row, count, dim=0) for row, count in zip(x + out, durations)]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True), durations.sum(1), skip

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.last = nn.Linear(4, 3)

    def forward(self, x, durations):
        longer, lengths, skip = self.block(x, durations)
        return self.last(longer).sum(1) + self.last(skip).sum(1), lengths
"""
PORT = """
import paddle
from paddle import nn
from paddle.nn import functional as F

class Longer(nn.Layer):
    def forward(self, x, durations):
        lengths = durations.sum(axis=1)
        most = int(lengths.max())
        ends = paddle.cumsum(durations, axis=1)
        place = paddle.arange(most).reshape([1, -1, 1])
        index = (place >= ends.unsqueeze(1)).astype("int64").sum(-1)
        index = paddle.clip(index, max=x.shape[1] - 1)
        found = paddle.take_along_axis(x, index.unsqueeze(-1), axis=1)
        inside = paddle.arange(most).unsqueeze(0) < lengths.unsqueeze(1)
        return found * inside.unsqueeze(-1).astype(x.dtype), lengths

def gated(x):
    signal, gate = paddle.split(x, 2, axis=-1)
    return paddle.tanh(signal) * F.sigmoid(gate)

class GatedBlock(nn.Layer):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(4, 8)
        self.to_skip, self.to_residual = nn.Linear(4, 4), nn.Linear(4, 4)
        self.longer = Longer()

    def forward(self, x, durations):
        kept = gated(self.enter(x))
        residual = self.to_residual(kept)
        return *self.longer(x + residual, durations), self.to_skip(kept)

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.block = GatedBlock()
        self.last = nn.Linear(4, 3)

    def forward(self, x, durations):
        longer, lengths, skip = self.block(x, durations)
        return self.last(longer).sum(1) + self.last(skip).sum(1), lengths
"""


def written(folder: Path, port: str) -> Path:
    for name, text in (("case", CASE), ("theirs", REFERENCE), ("ours", port)):
        (folder / f"{name}.py").write_text(text)
    return folder / "case.py"


@pytest.mark.parametrize(
    ("right", "wrong", "line", "meant"),
    [
        ("place >= ends.unsqueeze(1)", "place > ends.unsqueeze(1)", "index = (", "place >= ends.unsqueeze(1)"),
        ("self.to_skip(kept)", "self.to_skip(residual)", "return *self", "self.to_skip(kept)"),
    ],
)
def test_the_edit_inside_of_the_layer_is_told(right: str, wrong: str, line: str, meant: str, tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, edited(PORT, [(right, wrong)])), stages=("forward",))
    assert fault.explanation is not None, fault.evidence
    number = next(n for n, text in enumerate(PORT.splitlines(), start=1) if line in text)
    assert f"line {number} of ours.py" in fault.explanation.text
    assert fault.explanation.evidence["lines_of_port"][0][1] == number
    assert fault.suggestion.partition(" in place of ")[0].endswith(f"write `{meant}`"), fault.suggestion


def test_a_right_layer_in_other_words_is_no_fault(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, PORT)) == []
