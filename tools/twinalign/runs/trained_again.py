"""Trainings in float64 that are made once more where the first ones leave open what they show."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinalign.recorder.recorder import Recorder
from twinalign.recorder.recording_plan import PlannedRecording
from twinalign.runs.experiments import TRAIN
from twinalign.sides import FOUND, SIDES
from twinalign.verdict.results import DIVERGED, Comparison
from twinalign.verdict.stage_recordings import StageRecordings
from twinalign.verdict.training_comparison import begin_rounded, unsettled_step

Plans = Mapping[str, Mapping[str, Any]]
"""Side → fields of its `TrainingPlan`."""


def on_same_batches(recorder: Recorder, comparison: Comparison) -> Plans | None:
    """Plans by which the port trains on the reference's data, where its own differ by no more than rounding to float32.

    Last bits of the data may decide on which side of a kink a value falls: what they change is no multiple of them.
    """
    if comparison.verdict != DIVERGED or recorder.settings.ranks > 1:
        return None
    recordings = StageRecordings.load(recorder, TRAIN)
    theirs, ours = (recordings.arrays(side, "float64") for side in SIDES)
    if theirs is None or ours is None or not begin_rounded(theirs, ours):
        return None
    recorder.progress(FOUND, f"06 {TRAIN}: float64 once more on the same batches, which each side rounds to float32")
    batches = str(_batches_of(recorder))
    return {"ref": {"keep": batches, "keep_state": False}, "paddle": {"rounded": batches}}


def longer(recorder: Recorder, comparison: Comparison) -> Plans | None:
    """Plans up to the last step at which curves depart without a proof of what they show.

    One repeat may miss how far rounding takes the port.
    """
    last = unsettled_step(comparison)
    if last is None or "float64" not in recorder.dtypes_of(TRAIN):
        return None
    steps = last + 1
    recorder.progress(FOUND, f"06 {TRAIN}: {steps} steps in float64, to tell rounding that grows from a fault")
    return {side: {"steps": steps} for side in SIDES}


def train_again(recorder: Recorder, plans: Plans) -> None:
    """Train both sides in float64 by these plans; the recordings take the place of those that are there."""
    wanted = [
        PlannedRecording(side, TRAIN, "float64", recorder.recording_path(side, TRAIN, "float64")) for side in SIDES
    ]
    try:
        with recorder.running(SIDES, wanted) as weights:
            for one in wanted:
                recorder.make(one, weights, plan={**recorder.settings.plan, **plans[one.side]})
    finally:
        _batches_of(recorder).unlink(missing_ok=True)


def _batches_of(recorder: Recorder) -> Path:
    return recorder.out / "float64" / "batches_ref.npz"
