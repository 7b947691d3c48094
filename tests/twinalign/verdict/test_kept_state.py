"""State that one side's optimizer does not show is a note, where the steps that follow tell what it does."""

from __future__ import annotations

import numpy as np

from twinalign.files.recordings import Recording
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.kept_state import without_lone_state
from twinalign.verdict.results import Comparison
from twinalign.verdict.stage_recordings import StageRecordings

STATE = "step{}.velocity.weight"


def compared(steps: int, last: float = 1.0) -> Comparison:
    sides = {}
    for side in ("ref", "paddle"):
        arrays = {f"step{step}.parameter.weight": np.ones(3, np.float32) for step in range(steps)}
        if side == "ref":
            arrays |= {STATE.format(step): np.ones(3, np.float32) for step in range(steps)}
        else:
            arrays[f"step{steps - 1}.parameter.weight"] *= last
        sides[side, "float32"] = Recording(arrays, {})
    return compare_stage("backward", StageRecordings(sides), {})


def test_an_optimizer_that_keeps_its_state_to_itself_is_judged_by_its_steps() -> None:
    found = compared(2)
    assert found.verdict == "aligned"
    assert found.notes[0] == (
        "the port's optimizer keeps no velocity in paddle's `_add_accumulator`: "
        "it is judged by the parameters after each step"
    )
    assert compared(2, last=1.1).verdict == "diverged"
    assert compared(1).verdict == "diverged"  # nothing else would tell


def test_state_of_some_parameters_is_compared() -> None:
    both = {"ref": [STATE.format(0), STATE.format(1)], "paddle": ["step0.velocity.bias"]}
    assert without_lone_state(both) == (set(), [])
