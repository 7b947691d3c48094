"""Right ports that hand on masks, tables and gradients in their own way, and what is wrong beside that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of, written
from twinalign.recorder.recorder import RunSettings
from twinalign.runs.run_stages import run

REFERENCE = """
class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).transpose(1, 2) / x.shape[-1] ** 0.5
        return scores.masked_fill(~mask, -1e9).softmax(-1) @ self.v(x)

class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.first, self.second, self.last = Attention(width), Attention(width), nn.Linear(width, 3)

    def forward(self, x, valid):
        near = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])[None]
        mask = ((near >= 0) & (near < 3))[None] & (valid > 0)[:, None, :]
        return self.last(self.second(self.first(x, mask), mask))
"""
PORT = """
class Attention(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, bias):
        scores = paddle.matmul(self.q(x), self.k(x), transpose_y=True) * x.shape[-1] ** -0.5
        return paddle.matmul(F.softmax(scores + bias, axis=-1), self.v(x))

class Net(nn.Layer):
    def __init__(self, width=6):
        super().__init__()
        self.first, self.second, self.last = Attention(width), Attention(width), nn.Linear(width, 3)

    def forward(self, x, valid):
        rows, columns = paddle.arange(x.shape[1]).unsqueeze(1), paddle.arange(x.shape[1]).unsqueeze(0)
        seen = paddle.logical_and(columns <= rows, columns > rows - 3).unsqueeze(0)
        seen = paddle.logical_and(seen, (valid > 0).unsqueeze(1))
        bias = paddle.where(seen, paddle.zeros([1], x.dtype), paddle.full([1], -1e9, x.dtype))
        return self.last(self.second(self.first(x, bias), bias))
"""
INPUTS = '{"x": rng.standard_normal((2, 7, 6)).astype("float32"), "valid": (rng.random((2, 7)) < 0.9).astype("int64")}'


def test_a_mask_to_be_added_is_the_mask_of_truth_values(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, REFERENCE, PORT, INPUTS)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("columns > rows - 3", "columns >= rows - 3", "rows - columns < 3"),
        ("x.shape[-1] ** -0.5", "x.shape[-2] ** -0.5", "the attention's scale differs"),
    ],
)
def test_what_is_wrong_beside_such_a_mask_is_the_only_fault(right: str, wrong: str, said: str, tmp_path: Path) -> None:
    faults = faults_of(written(tmp_path, REFERENCE, edited(PORT, [(right, wrong)]), INPUTS))
    assert faults
    for fault in faults:
        assert fault.explanation is not None
        assert said in f"{fault.explanation.text} {fault.suggestion}"


QUANTISED = """
class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.linspace(-1, 1, 8)[:, None].repeat(1, 4))

    def forward(self, x):
        index = torch.cdist(x, self.table).argmin(-1)
        found = self.table[index]
        return x + (found - x).detach(), index

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.codes, self.leave = nn.Linear(4, 4), Codes(), nn.Linear(4, 3)

    def forward(self, x):
        x = self.enter(x)
        found, _ = self.codes(x)
        return self.leave(x + (found - x).detach())
"""
DETACHED = """
class Codes(nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", paddle.linspace(-1, 1, 8).unsqueeze(1).tile([1, 4]))

    def forward(self, x):
        index = ((x.unsqueeze(-2) - self.table) ** 2).sum(-1).argmin(-1)
        return F.embedding(index, self.table).detach(), index

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.enter, self.codes, self.leave = nn.Linear(4, 4), Codes(), nn.Linear(4, 3)

    def forward(self, x):
        x = self.enter(x)
        found, _ = self.codes(x)
        return self.leave(x + found - x.detach())
"""
LOSS = """
def loss(self, outputs, inputs, framework):
    return (outputs * outputs).mean()
"""


def test_no_gradient_is_sent_to_what_a_layer_returns_without_a_graph(tmp_path: Path) -> None:
    inputs = '{"x": rng.standard_normal((5, 4)).astype("float32")}'
    assert faults_of(written(tmp_path, QUANTISED, DETACHED, inputs, LOSS)) == []
    lost = edited(DETACHED, [("self.leave(x + found - x.detach())", "self.leave(found)")])
    (fault,) = faults_of(written(tmp_path, QUANTISED, lost, inputs, LOSS))
    assert fault.phase == "backward"


SPLIT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(9, 8), nn.Linear(8, 4)

    def forward(self, h, e):
        return self.second(torch.relu(self.first(torch.cat([h, e], -1))))
"""
SUMMED = """
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.of_h, self.of_e = nn.Linear(6, 8, bias_attr=False), nn.Linear(3, 8)
        self.second = nn.Linear(8, 4)

    def forward(self, h, e):
        return self.second(F.relu(self.of_h(h) + self.of_e(e)))
"""


def test_what_takes_values_of_layers_without_a_counterpart_decides_nothing(tmp_path: Path) -> None:
    inputs = '{name: rng.standard_normal((5, n)).astype("float32") for name, n in (("h", 6), ("e", 3))}'
    result = run(RunSettings(str(written(tmp_path, SPLIT, SUMMED, inputs)), tmp_path / "out", ("forward",)))
    assert result.verdict == "inconclusive"
    assert result.located is not None
    assert result.located.faults == []
