"""Values that models start from: the line of the port that makes them is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASE = """
from twinalign import Case


class Starting(Case):
    initial = True

    def reference(self):
        import theirs

        return theirs.Net()

    def reproduced(self):
        import ours

        return ours.Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((2, 3, 6)).astype("float32")}
"""
REFERENCE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.enter = nn.Linear(6, width)
        nn.init.normal_(self.enter.weight, std=0.2)
        nn.init.zeros_(self.enter.bias)
        self.cell = nn.LSTM(width, 8, batch_first=True)
        for name, tensor in self.cell.named_parameters():
            nn.init.uniform_(tensor, -0.3, 0.3)
            if "bias" in name:
                nn.init.zeros_(tensor)
        with torch.no_grad():
            self.cell.bias_ih_l0[8:16] = 1.0

    def forward(self, x):
        return self.cell(self.enter(x))[0]
"""
PORT = """
import numpy as np
import paddle
from paddle import ParamAttr, nn
from paddle.nn.initializer import Assign, Constant, Normal, Uniform


class Net(nn.Layer):
    def __init__(self, width=64, hidden=8):
        super().__init__()
        self.enter = nn.Linear(6, width, weight_attr=ParamAttr(initializer=Normal(std=0.2)))
        gates = np.zeros(4 * hidden, "float32")
        gates[hidden : 2 * hidden] = 1
        uniform = ParamAttr(initializer=Uniform(-0.3, 0.3))
        self.cell = nn.LSTM(
            width,
            hidden,
            weight_ih_attr=uniform,
            weight_hh_attr=uniform,
            bias_ih_attr=ParamAttr(initializer=Assign(gates)),
            bias_hh_attr=ParamAttr(initializer=Constant(0.0)),
        )

    def forward(self, x):
        return self.cell(self.enter(x))[0]
"""


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("gates[hidden : 2 * hidden]", "gates[:hidden]", "`gates[:hidden]` in place of `gates[hidden:2 * hidden]`"),
        ("Normal(std=0.2)", "Normal(std=0.02)", "`Normal(std=0.02)` in place of `Normal(std=0.2)`"),
    ],
)
def test_the_line_is_told(right: str, wrong: str, told: str, tmp_path: Path) -> None:
    for name, text in (("case.py", CASE), ("theirs.py", REFERENCE), ("ours.py", edited(PORT, [(right, wrong)]))):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (fault,) = locate(RunSettings(str(tmp_path / "case.py"), tmp_path / "out")).faults
    assert fault.phase == "initial"
    assert fault.explanation is not None
    assert told in fault.explanation.text, fault.explanation.text
    number = next(n for n, text in enumerate(edited(PORT, [(right, wrong)]).splitlines(), start=1) if wrong in text)
    assert f"line {number} of ours.py" in fault.explanation.text
