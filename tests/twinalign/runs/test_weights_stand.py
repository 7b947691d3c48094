"""A reference whose initial weights come out otherwise each time is searched with those that it was recorded with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import KeptRun
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate
from twinalign.verdict.results import DIVERGED

CASE = """
import os
from twinalign import Case
import numpy as np

class Restless(Case):
    name = "restless"
    float64_train_steps = 9

    def reference(self):
        import torch
        torch.manual_seed(int.from_bytes(os.urandom(4), "little"))  # as QR with another number of threads
        return torch.nn.Linear(4, 3)

    def reproduced(self):
        import paddle
        return paddle.nn.Linear(4, 3)

    def inputs(self, rng):
        return {"x": rng.standard_normal((5, 4)).astype("float32")}

    def train(self, framework, model, record, steps):
        lib, is_port = __import__(framework), framework == "paddle"
        optimizer = (
            lib.optimizer.SGD(0.1, parameters=model.parameters()) if is_port else lib.optim.SGD(model.parameters(), 0.1)
        )
        for step in range(steps or 9):
            x = np.random.default_rng(step).standard_normal((5, 4)).astype("float32")
            scale = RATE if is_port and step >= 7 else 1.0
            loss = scale * (model(lib.to_tensor(x) if is_port else lib.from_numpy(x)) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad() if is_port else optimizer.zero_grad()
            record("loss", float(loss))
        return {}
"""


@pytest.mark.slow
def test_a_training_that_departs_late_is_searched_on_the_recorded_weights(tmp_path: Path, kept_run: KeptRun) -> None:
    case, out = tmp_path / "case.py", tmp_path / "run"
    case.write_text(CASE.replace("RATE", "1.5"))
    assert kept_run(case, stages=("train",), out=out, locate=False).verdict == DIVERGED
    weights = (out / "weights" / "restless_ref.npz").read_bytes()
    found = locate(RunSettings(case=str(case), out=out, stages=("train",)))
    assert (out / "weights" / "restless_ref.npz").read_bytes() == weights
    assert not found.not_searched
    (fault,) = found.faults
    assert fault.evidence["values"]["loss"]["first_step"] == 7
    assert fault.explanation is not None
    assert "`scale * (model(" in fault.explanation.text
