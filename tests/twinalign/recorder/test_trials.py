"""Names that do not tell which layer is which: the two models are run to find out, in the processes that are up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from twinalign.processes.side_process import SideProcess
from twinalign.recorder.recorder import Recorder, RunSettings

CASE = """
from twinalign import Case

class Net(Case):
    def reference(self):
        from torch import nn

        return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def reproduced(self):
        import paddle

        class Port(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                self.last = paddle.nn.Linear(4, 4)
                self.first = paddle.nn.Linear(4, 4)

            def forward(self, x):
                return self.last(paddle.nn.functional.relu(self.first(x)))

        return Port()

    def inputs(self, rng):
        return {"x": rng.standard_normal((3, 4), dtype="float32")}
"""


@pytest.mark.slow
def test_a_run_tries_its_models_in_the_recorders_that_are_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Counted(SideProcess):
        def __init__(self, side: str, **options: Any) -> None:
            started.append(side)
            super().__init__(side, **options)

    monkeypatch.setattr("twinalign.recorder.recorder.SideProcess", Counted)
    case = tmp_path / "case.py"
    case.write_text(CASE)
    settings = RunSettings(str(case), tmp_path / "out", precision="float32")
    ledger = tmp_path / "out" / "weights" / "Net_ledger.json"
    assert sorted(Recorder(settings).record()) == ["forward", "initial"]
    assert started == ["ref", "paddle"]
    pairs = {entry["source"][0]: entry["target"] for entry in json.loads(ledger.read_text())["entries"]}
    assert pairs["0.weight"] == "first.weight"
    assert pairs["2.weight"] == "last.weight"

    # With one side alone, the other model is in no process yet.
    del started[:]
    ledger.unlink()
    (tmp_path / "out" / "forward_paddle.npy").unlink()
    (tmp_path / "out" / "forward_paddle.json").unlink()
    assert sorted(Recorder(settings).record(["paddle"])) == ["forward", "initial"]
    assert sorted(started) == ["paddle", "ref"]
    assert {entry["source"][0]: entry["target"] for entry in json.loads(ledger.read_text())["entries"]} == pairs
