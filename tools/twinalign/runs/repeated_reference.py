"""The reference once more, moved by last bits, where float32 alone diverges: does it jump as far as the port?"""

from twinalign.errors import SideCrashError
from twinalign.files.recordings import metadata_path
from twinalign.recorder.recorder import Recorder
from twinalign.recorder.recording_plan import PlannedRecording
from twinalign.runs.run_result import RunResult
from twinalign.stages import STAGE_BY_NAME
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.jumps import by_rounding_alone
from twinalign.verdict.results import ALIGNED, DIVERGED
from twinalign.verdict.stage_recordings import StageRecordings

_REPEATS = range(2, 10)
"""Numbers of the repeats; whether a value crosses a step is chance. The first repeat moves by one unit alone."""


def explained_by_repeats(recorder: Recorder, result: RunResult) -> list[str]:
    """Repeat the reference where float32 alone diverged, until the repeat explains it; returns the stages that it does.

    The repeat is kept beside the recordings, and read whenever the stage is judged again.
    """
    left = [
        stage
        for stage, comparison in result.stages.items()
        if comparison.verdict == DIVERGED
        and STAGE_BY_NAME[stage].judged_in_any_precision
        and stage != "train"
        and by_rounding_alone(comparison.tensors)
    ]
    failed = {stage for _, stage in recorder.without_float64}
    if not left or failed & set(left) or recorder.settings.precision != "both" or recorder.settings.ranks > 1:
        return []
    wanted = {stage: PlannedRecording("ref", stage, "float32", recorder.repeat_path(stage)) for stage in left}
    settled = list[str]()
    try:
        with recorder.running(("ref",), list(wanted.values())) as weights:
            for number in _REPEATS:
                for stage in left:
                    recorder.make(wanted[stage], weights, repeat=number)
                settled += [stage for stage in left if _explains(recorder, stage)]
                left = [stage for stage in left if stage not in settled]
                if not left:
                    break
    except SideCrashError:  # the verdict stands without it
        pass
    for stage in left:
        for path in (metadata_path(wanted[stage].path), wanted[stage].path):
            path.unlink(missing_ok=True)
    return settled


def _explains(recorder: Recorder, stage: str) -> bool:
    return compare_stage(stage, StageRecordings.load(recorder, stage), recorder.description).verdict == ALIGNED
