"""A training in float64 for as many steps as its verdict needs: one repeat may miss how far rounding takes the port."""

from twinalign.recorder.recorder import Recorder
from twinalign.recorder.recording_plan import PlannedRecording
from twinalign.runs.experiments import TRAIN
from twinalign.sides import FOUND, SIDES
from twinalign.verdict.results import Comparison
from twinalign.verdict.training_comparison import unsettled_step


def trained_longer(recorder: Recorder, comparison: Comparison) -> bool:
    """Train both sides in float64 up to the last step at which curves depart without a proof of what they show.

    Returns whether that was needed: the stage is to be judged again then. The recordings take the place of the shorter
    ones, which they begin with.
    """
    last = unsettled_step(comparison)
    if last is None or "float64" not in recorder.dtypes_of(TRAIN):
        return False
    steps = last + 1
    recorder.progress(FOUND, f"06 {TRAIN}: {steps} steps in float64, to tell rounding that grows from a fault")
    wanted = [
        PlannedRecording(side, TRAIN, "float64", recorder.recording_path(side, TRAIN, "float64")) for side in SIDES
    ]
    with recorder.running(SIDES, wanted) as weights:
        for one in wanted:
            recorder.make(one, weights, plan={**recorder.settings.plan, "steps": steps})
    return True
