"""A run builds no model twice that it can look at, and records what it would have recorded with a model of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinalign.files.recordings import Recording
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.stages.initial import SEEDS

pytestmark = pytest.mark.usefixtures("kept_processes")

CASE = """
from pathlib import Path

from twinalign import Case


def noted(side, model):
    with (Path(__file__).parent / f"built_{side}").open("a") as stream:
        stream.write("x")
    return model


class Net(Case):
    def reference(self):
        from torch import nn

        return noted("ref", nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))

    def reproduced(self):
        from paddle import nn

        return noted("paddle", nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))

    def inputs(self, rng):
        return {"x": rng.standard_normal((3, 4), dtype="float32")}
"""


def test_the_model_that_gave_the_weights_is_recorded_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinalign.recorder.recorder.available_memory", lambda: 1 << 40)
    (tmp_path / "case.py").write_text(CASE)

    def built(sequential: bool) -> tuple[list[int], Recorder]:
        recorder = Recorder(
            RunSettings(str(tmp_path / "case.py"), tmp_path / f"result{sequential}", sequential=sequential)
        )
        assert list(recorder.record()) == ["initial", "forward"]
        files = [tmp_path / f"built_{side}" for side in ("ref", "paddle")]
        counts = [len(file.read_text()) for file in files]
        for file in files:
            file.unlink()
        return counts, recorder

    counts, recorder = built(sequential=False)
    # Once for each seed, of which the first gives the weights and is recorded in float32, and once for float64.
    assert counts == [SEEDS + 1] * 2
    # One side after the other gives its memory back before, and so builds the first seed's model once more.
    counts, other = built(sequential=True)
    assert counts == [SEEDS + 2] * 2
    for side in ("ref", "paddle"):
        for stage in ("initial", "forward"):
            arrays = [Recording.load(one.recording_path(side, stage, "float32")).arrays for one in (recorder, other)]
            assert arrays[0].keys() == arrays[1].keys()
            assert all(np.array_equal(array, arrays[1][name]) for name, array in arrays[0].items())


PARTS = """

class Other(Net):
    def reference(self):
        from torch import nn

        return nn.Linear(4, 4)

    def reproduced(self):
        from paddle import nn

        return nn.Linear(4, 4)

    def evaluate(self, model, framework, dtype):
        return {"accuracy": 50.0}


class InParts(Net):
    def part(self, stage):
        return Other() if stage == "metric" else self
"""


def test_the_first_parts_model_is_there_after_the_weights_of_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinalign.recorder.recorder.available_memory", lambda: 1 << 40)
    (tmp_path / "case.py").write_text(CASE + PARTS)
    recorder = Recorder(RunSettings(f"{tmp_path / 'case.py'}:InParts", tmp_path / "result"))
    assert set(recorder.record()) == {"initial", "forward", "metric"}
    counts = [len((tmp_path / f"built_{side}").read_text()) for side in ("ref", "paddle")]
    assert counts == [SEEDS + 1] * 2
