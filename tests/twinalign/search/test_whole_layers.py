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


def written(folder: Path, port: str, case: str = CASE, reference: str = REFERENCE) -> Path:
    for name, text in (("case", case), ("theirs", reference), ("ours", port)):
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


OF_MASKS = CASE.replace('"durations": durations', '"lengths": np.array([5, 3])').replace("(2, 3, 4)", "(2, 5, 4)")
PADDING = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(4, 4)

    def forward(self, x, hidden):
        scores = (x @ x.transpose(1, 2)).masked_fill(hidden[:, None], -1e9)
        return torch.softmax(scores, -1) @ self.value(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.attention, self.last = nn.Linear(4, 4), Attention(), nn.Linear(4, 3)

    def forward(self, x, lengths):
        x = self.enter(x)
        hidden = torch.arange(x.size(1))[None] >= lengths[:, None]
        return self.last(self.attention(x, hidden) + x)
"""
VALID = """
import paddle
from paddle import nn
from paddle.nn import functional as F

class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(4, 4)

    def forward(self, x, seen):
        scores = paddle.matmul(x, x, transpose_y=True) + (1.0 - seen.astype(x.dtype)).unsqueeze(1) * -1e9
        return paddle.matmul(F.softmax(scores, -1), self.value(x))

def valid_places(lengths, most):
    positions = paddle.arange(most).unsqueeze(0)
    return positions < lengths.unsqueeze(1)

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.enter, self.attention, self.last = nn.Linear(4, 4), Attention(), nn.Linear(4, 3)

    def forward(self, x, lengths):
        width = x.shape[1]
        seen = valid_places(lengths, width)
        x = self.enter(x)
        return self.last(x + self.attention(x, seen))
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("lengths.unsqueeze(1)", "lengths.unsqueeze(1) - 1"), ("positions < lengths", "positions <= lengths")],
)
def test_a_wrong_mask_of_the_opposite_sense_is_told(right: str, wrong: str, tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, edited(VALID, [(right, wrong)]), OF_MASKS, PADDING), stages=("forward",))
    assert fault.explanation is not None, fault.evidence
    assert f"`{wrong}" in fault.explanation.text
