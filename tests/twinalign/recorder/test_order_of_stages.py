"""Which stages a run has first: those that need no model are not kept waiting for one."""

from pathlib import Path

import pytest

from twinalign.recorder.recorder import Recorder, RunSettings

pytestmark = pytest.mark.usefixtures("kept_processes")

_CASE = """
import numpy as np
from twinalign import Case


class WithoutModel(Case):
    name = "without_model"

    def reference(self):
        raise RuntimeError("the model was built")

    def reproduced(self):
        raise RuntimeError("the model was built")

    def inputs(self, rng):
        return {"x": rng.standard_normal((2, 3), dtype="float32")}

    def dataset(self, framework, split):
        return [np.arange(3, dtype="float32")]
"""


def test_data_is_recorded_before_any_model_is_built(tmp_path: Path) -> None:
    case = tmp_path / "case.py"
    case.write_text(_CASE)
    out = tmp_path / "result"
    stages = Recorder(RunSettings(str(case), out=out)).record()
    assert next(stages) == "data"
    assert not list(out.glob("weights/*"))
    stages.close()  # type: ignore[attr-defined]


def test_float64_of_the_largest_model_is_recorded_at_opposite_ends(tmp_path: Path) -> None:
    recorder = Recorder(RunSettings("tests.cases.variety:Everything", out=tmp_path))
    recorder.description = {
        "parts": {"forward": "large", "backward": "large", "train": "small", "initial": "large"},
        "stages": ["forward", "backward", "train"],
        "float64_train_steps": 2,
    }
    sides = ("ref", "paddle")
    first, second = recorder._in_turn(recorder._planned(sides), sides)
    large = ["forward", "backward"]
    assert [(one.stage, one.dtype) for one in first] == [
        ("initial", "float32"),
        *((stage, dtype) for dtype in ("float32", "float64") for stage in large),
        ("train", "float32"),
        ("train", "float64"),
    ]
    assert [(one.stage, one.dtype) for one in second] == [
        *((stage, "float32") for stage in ("initial", *large, "train")),
        *((stage, "float64") for stage in ("train", *large)),
    ]
