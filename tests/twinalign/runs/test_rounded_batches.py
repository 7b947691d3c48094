"""Batches that each side rounds to float32 itself, with a value at a kink: that changes more than by its last bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import KeptRun, read_summary

CASE = """
from twinalign import Case
import numpy as np

BY, RATE, OFF = {by!r}, {rate!r}, {off!r}
AT = float(np.float32(0.3))

class Kinked(Case):
    name = "kinked"
    float64_train_steps = 4

    def reference(self):
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(8, 4)
            def forward(self, x):
                return self.fc(torch.where(x > AT, x, -x))
        return Net()

    def reproduced(self):
        import paddle
        class Net(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                self.fc = paddle.nn.Linear(8, 4)
            def forward(self, x):
                return self.fc(paddle.where(x > AT, x, -x))
        return Net()

    def inputs(self, rng):
        return {{"x": rng.standard_normal((6, 8)).astype("float32")}}

    def train(self, framework, model, record, steps):
        is_port = framework == "paddle"
        lib = __import__(framework)
        if is_port:
            optimizer = lib.optimizer.SGD(RATE, parameters=model.parameters())
        else:
            optimizer = lib.optim.SGD(model.parameters(), 0.1)
        for step in range(steps or 4):
            x = np.random.default_rng(step).standard_normal((6, 8)).astype("float32")
            x[0, 0] = AT
            if is_port:
                x = np.nextafter(x, np.float32(np.inf)) if BY else x
                x[1, 1] += OFF
            loss = (model(lib.to_tensor(x) if is_port else lib.from_numpy(x)) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad() if is_port else optimizer.zero_grad()
            record("loss", float(loss))
        return {{}}
"""


@pytest.mark.parametrize(
    ("by", "rate", "off", "verdict"),
    [(0, 0.1, 0.0, "aligned"), (1, 0.1, 0.0, "aligned"), (1, 0.11, 0.0, "diverged"), (1, 0.1, 1e-5, "diverged")],
    ids=["same", "rounded", "rounded and another rate", "rounded and a wrong value"],
)
def test_training_is_judged_on_the_same_batches(
    by: int, rate: float, off: float, verdict: str, tmp_path: Path, kept_run: KeptRun
) -> None:
    (tmp_path / "case.py").write_text(CASE.format(by=by, rate=rate, off=off))
    kept_run(tmp_path / "case.py", stages=("train",), out=tmp_path / "run", locate=False)
    found = read_summary(tmp_path / "run")["stages"]["train"]
    assert found["verdict"] == verdict
    note = (
        "each side rounds its batches to float32 itself, to slightly different numbers: in float64 the port was given "
        "the reference's"
    )
    assert (note in found["notes"]) == (by == 1 and not off)
    assert not (tmp_path / "run" / "float64" / "batches_ref.npz").exists()
