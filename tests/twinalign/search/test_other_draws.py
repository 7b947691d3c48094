"""A port that does not run on whole numbers that are drawn anew, such as a graph's: its edits are proven on others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of, written

pytestmark = pytest.mark.slow

REFERENCE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x, graph):
        h = torch.tanh(self.first(x))
        sums = torch.zeros(3, 4, dtype=h.dtype).index_add(0, graph, h)
        return self.last(sums - 0.25 * h.mean(0))
"""
PORT = """
class Inner(nn.Layer):
    def forward(self, h, graph):
        if (graph[1:] < graph[:-1]).any():
            raise ValueError("a graph is sorted")
        return paddle.geometric.segment_sum(h, graph) - 0.25 * h.mean(0)

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.inner = nn.Linear(4, 4), nn.Linear(4, 3), Inner()

    def forward(self, x, graph):
        return self.last(self.inner(paddle.tanh(self.first(x)), graph))
"""
INPUTS = """{
    "x": rng.standard_normal((8, 4), dtype="float32"),
    "graph": np.array([0, 0, 0, 1, 1, 2, 2, 2]),
}"""


def test_the_edit_is_found(tmp_path: Path) -> None:
    port = edited(PORT, [("0.25 * h.mean(0)", "0.25 * h.square().mean(0)")])
    (fault,) = faults_of(written(tmp_path, REFERENCE, port, INPUTS), stages=("forward",))
    assert fault.explanation is not None, fault.evidence
    assert "`h.square()" in fault.explanation.text
    assert "helper_edit" in fault.explanation.evidence


def test_the_right_port_has_no_fault(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, REFERENCE, PORT, INPUTS), stages=("forward",)) == []
