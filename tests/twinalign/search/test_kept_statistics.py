"""A batch norm of the port's own that keeps other statistics than torch's: the line is found, in every layer of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of, written
from twinalign.reports.fault_facts import entries

pytestmark = pytest.mark.slow

REFERENCE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.one = nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)
        self.second, self.two = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x):
        return self.two(self.second(F.relu(self.one(self.first(x)))))
"""
NORM = """
import paddle

class Norm(paddle.nn.BatchNorm2D):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        kept = self._momentum * self._variance.detach()
        out = super().forward(x)
        n = x.shape[0] * x.shape[2] * x.shape[3]
        with paddle.no_grad():
            self._variance.set_value(kept + (self._variance - kept) * (n / (n - 1)))
        return out

"""
PORT = """
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.one = nn.Conv2D(2, 3, 1), Norm(3)
        self.second, self.two = nn.Conv2D(3, 4, 1), Norm(4)

    def forward(self, x):
        return self.two(self.second(F.relu(self.one(self.first(x)))))
"""
INPUTS = '{"x": rng.standard_normal((4, 2, 3, 5), dtype="float32")}'
RIGHT = "n = x.shape[0] * x.shape[2] * x.shape[3]"


def case_with(folder: Path, line: str) -> Path:
    return written(folder, REFERENCE, PORT, INPUTS, "train_mode = True", helpers=edited(NORM, [(RIGHT, line)]))


@pytest.mark.parametrize("line", ["n = x.shape[0]", "n = x.shape[0] * x.shape[2]", "n = x.shape[-1] * x.shape[0]"])
def test_a_count_over_other_axes_is_found(tmp_path: Path, line: str) -> None:
    """torch counts its batches, which paddle's layer has no buffer for: that is no state that an edit could mend."""
    faults = faults_of(case_with(tmp_path, line))
    (told,) = entries([fault.to_json() for fault in faults])
    assert told["explanation"] is not None, told["evidence"]
    assert f"`{line[4:]}` in place of `x.shape[0] * x.shape[2] * x.shape[3]`" in told["explanation"]["text"]


def test_the_right_norm_has_no_fault(tmp_path: Path) -> None:
    assert faults_of(case_with(tmp_path, RIGHT)) == []
