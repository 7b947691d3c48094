"""Which stages a run has first: those that need no model are not kept waiting for one."""

from pathlib import Path

from twinalign.recorder.recorder import Recorder, RunSettings

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
