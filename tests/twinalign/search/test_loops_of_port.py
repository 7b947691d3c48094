"""A decoder that calls cells step by step: its loop is wrong from some step on, or its calls are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of, in_paddle, written

pytestmark = pytest.mark.slow

REFERENCE = """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(4, 5)

    def forward(self, query, keys, last, total):
        scores = (keys * self.query(query)[:, None]).sum(-1) + 0.3 * last - 0.2 * total
        return torch.softmax(scores, -1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(3, 4)
        self.cell = nn.Linear(9, 4)
        self.attention = Attention()
        self.leave = nn.Linear(9, 3)

    def forward(self, memory, frames):
        batch = frames.shape[0]
        frames = torch.cat([torch.zeros(batch, 1, 3, dtype=frames.dtype), frames[:, :-1]], 1)
        frames = torch.relu(self.enter(frames))
        context = torch.zeros(batch, 5, dtype=frames.dtype)
        last = torch.zeros(batch, memory.shape[1], dtype=frames.dtype)
        total, made = last, []
        for step in range(frames.shape[1]):
            state = torch.tanh(self.cell(torch.cat([frames[:, step], context], -1)))
            last = self.attention(state, memory, last, total)
            total = total + last
            context = (last[..., None] * memory).sum(1)
            made.append(self.leave(torch.cat([state, context], -1)))
        return torch.stack(made, 1)
"""
RIGHT = in_paddle(
    REFERENCE,
    ("paddle.cat(", "paddle.concat("),
    ("paddle.softmax(", "F.softmax("),
    ("paddle.relu", "F.relu"),
    ("paddle.zeros(batch, 1, 3,", "paddle.zeros([batch, 1, 3],"),
    ("paddle.zeros(batch, 5,", "paddle.zeros([batch, 5],"),
    ("paddle.zeros(batch, memory.shape[1],", "paddle.zeros([batch, memory.shape[1]],"),
)
INPUTS = (
    '{"memory": rng.standard_normal((2, 6, 5)).astype("float32"), '
    '"frames": rng.standard_normal((2, 7, 3)).astype("float32")}'
)


def test_the_right_loop_has_no_fault(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, REFERENCE, RIGHT, INPUTS)) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("frames[:, :-1]", "frames[:, 1:]"),
        ("memory, last, total)", "memory, total, last)"),
        ("memory, last, total)", "memory, last, last)"),
        ("total = total + last", "total = last"),
    ],
)
def test_the_wrong_line_is_told(right: str, wrong: str, tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, REFERENCE, edited(RIGHT, [(right, wrong)]), INPUTS))
    assert fault.explanation is not None, fault.evidence
    number = next(n for n, text in enumerate((tmp_path / "case.py").read_text().splitlines(), start=1) if wrong in text)
    assert fault.explanation.evidence["lines_of_port"] == [["case.py", number, number]], fault.explanation.text
