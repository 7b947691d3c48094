"""Whether nothing but what constructors round to float32 keeps two float64 runs apart.

Models are built in float32 and then widened. A table of positions that one side makes in its constructor, and the other
in its forward, then differs in float64 by what float32 leaves of it. Models that are built in float64 have it exactly.
"""

import dataclasses
import os
import shutil
from collections.abc import Sequence

from twinalign.errors import SideCrashError
from twinalign.files.recordings import Recording, metadata_path
from twinalign.recorder.recorder import Recorder
from twinalign.recorder.recording_plan import PlannedRecording
from twinalign.runs.run_result import RunResult
from twinalign.sides import SIDES
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.results import ALIGNED, DIVERGED, Comparison
from twinalign.verdict.stage_recordings import StageRecordings

BUILT_IN_FLOAT64 = (
    "float64 is that of models built in float64: built in float32 and then widened, the two differ by what float32 "
    "leaves of constants that their constructors make, such as a table of positions"
)
_STAGES = ("forward", "loss", "backward")
_WIDENED = 1e-5
"""As much as layers widen the rounding of a constant; a wrong constant as small as this differs in exact runs too."""


def settled_constants(recorder: Recorder, result: RunResult) -> list[str]:
    """Record float64 anew, with models built in it, where constants in float32 may be all that differs.

    Returns the stages that are to be judged again: all of the model that diverged, if one of them no longer does then,
    else none, and their recordings stay as they were.
    """
    diverged = [stage for stage in _STAGES if stage in result.stages and result.stages[stage].verdict == DIVERGED]
    if not diverged or not _may_be_constants(result.stages[diverged[0]]):
        return []
    if recorder.settings.precision != "both" or recorder.settings.ranks > 1:
        return []
    if {stage for _, stage in recorder.without_float64} & set(diverged):
        return []
    folder = recorder.out / "built_in_float64"
    try:
        wanted = [
            PlannedRecording(side, stage, "float64", folder / path.name, built_in_float64=True)
            for stage in diverged
            for side in SIDES
            for path in [recorder.recording_path(side, stage, "float64")]
        ]
        with recorder.running(SIDES, wanted) as weights:
            for one in sorted(wanted, key=lambda one: one.side):
                recorder.make(one, weights)
        if not any(_settles(recorder, stage, wanted) for stage in diverged):
            return []
        for one in wanted:
            path = recorder.recording_path(one.side, one.stage, one.dtype)
            metadata_path(path).unlink(missing_ok=True)  # a recording without metadata counts as unfinished
            os.replace(one.path, path)
            os.replace(metadata_path(one.path), metadata_path(path))
        return diverged
    except SideCrashError:  # a constructor may insist on float32
        return []
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settles(recorder: Recorder, stage: str, made: Sequence[PlannedRecording]) -> bool:
    """Whether a stage is aligned with these recordings in float64."""
    recordings = StageRecordings.load(recorder, stage)
    found = {(one.side, one.dtype): Recording.load(one.path) for one in made if one.stage == stage}
    exact = dataclasses.replace(recordings, by_key={**recordings.by_key, **found})
    return compare_stage(stage, exact, recorder.description).verdict == ALIGNED


def _may_be_constants(comparison: Comparison) -> bool:
    wrong = [tensor for tensor in comparison.tensors if tensor.verdict == DIVERGED]
    return bool(wrong) and all(
        tensor.basis == "float64" and tensor.fp64_rel is not None and tensor.fp64_rel <= _WIDENED for tensor in wrong
    )
