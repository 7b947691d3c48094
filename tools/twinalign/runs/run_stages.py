"""A run: record what is missing, compare each stage, locate what is wrong, and write what reviewers read."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinalign.errors import SideCrashError
from twinalign.files.recordings import Recording, write_json, write_text
from twinalign.recorder.held_folder import held_folder
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.recorder.recording_plan import not_checked
from twinalign.reports import write_report
from twinalign.runs.built_constants import BUILT_IN_FLOAT64, settled_constants
from twinalign.runs.experiments import check_experiments, explain_training, record_seeds, record_switched
from twinalign.runs.repeated_reference import explained_by_repeats
from twinalign.runs.run_result import RunResult
from twinalign.runs.tensorboard import TensorBoardLogs, fill_logs
from twinalign.runs.trained_again import longer, on_same_batches, train_again
from twinalign.sides import FOUND, INITIAL, SIDES, stage_number
from twinalign.verdict.classic import log_lines
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.initial_weights import compare_initial
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, float64_agrees
from twinalign.verdict.stage_recordings import StageRecordings


def run(
    settings: RunSettings,
    progress: Callable[[str, str], None] = lambda side, text: None,
    kept: KeptProcesses | None = None,
    report: bool = True,
) -> RunResult:
    """Record what is missing, compare every stage, and write logs, `summary.json` and, for a `report`, `report.html`.

    If stages diverge, the faulty layers and parts are located. `kept` lends the processes of a session.

    Raises:
        InputError: a mistake in the settings, the case or its data.
        SideCrashError: the process of a side died, or the case's own code raised.
    """
    check_experiments(settings)
    recorder = Recorder(settings, progress, kept)
    with held_folder(settings.out):
        return _run(recorder, kept, report)


def _run(recorder: Recorder, kept: KeptProcesses | None, report: bool) -> RunResult:
    started = time.perf_counter()
    settings, progress = recorder.settings, recorder.progress
    logs = TensorBoardLogs(settings.out / "tensorboard") if settings.tensorboard else None
    if logs is not None:
        recorder.points = logs.points
    for name in ("summary.json", "report.html"):  # an old verdict must not stand beside new recordings
        (settings.out / name).unlink(missing_ok=True)
    result = RunResult(recorder.resolved, {}, {}, 0.0)
    result.precision, result.accuracy_compatible = settings.precision, settings.accuracy_compatible
    result.ranks = settings.ranks
    stages = []
    for stage in recorder.record():
        if stage == "train":  # what more is to be trained is trained once the processes of both sides have ended
            stages.append(stage)
        elif stage == INITIAL:
            recordings = StageRecordings.load(recorder, stage)
            result.initial = compare_initial(
                recordings, counts=INITIAL in settings.stages or recorder.description[INITIAL]
            )
            result.environment.update(recordings.environment())
        else:
            _judge_stage(recorder, stage, result)
    for stage in stages:
        record_seeds(recorder, progress, logs)
        if logs is not None:
            fill_logs(logs, recorder)
            recorder.points = logs.named(" switched").points
        record_switched(recorder, progress)
        _judge_stage(recorder, stage, result)
        plans: dict[str, dict[str, Any]] = {side: {} for side in SIDES}
        # More steps may show what last bits of the batches do.
        for needed in (on_same_batches, longer, on_same_batches):
            if more := needed(recorder, result.stages[stage]):
                plans = {side: {**of_side, **more[side]} for side, of_side in plans.items()}
                train_again(recorder, plans)
                _judge_stage(recorder, stage, result)
        explain_training(recorder, result.stages[stage], progress)
    if logs is not None:
        logs.close()
    for settled in (settled_constants, explained_by_repeats):
        for stage in settled(recorder, result):
            _judge_stage(recorder, stage, result)
    result.case = recorder.description["name"]
    result.not_checked = not_checked(recorder.description, tuple(result.stages))
    result.stages = {stage: result.stages[stage] for stage in recorder.description["stages"] if stage in result.stages}
    wrong = tuple(stage for stage, comparison in result.stages.items() if comparison.verdict != ALIGNED)
    if settings.locate and any(
        result.stages[stage].verdict == DIVERGED or stage in result.unmatched for stage in wrong
    ):
        _search(recorder, wrong, result, kept)
    _decide_unmatched(result)
    result.seconds = time.perf_counter() - started
    write_json(settings.out / "summary.json", result.to_json())
    if report:
        write_report(settings.out, settings.language)
    return result


def _search(recorder: Recorder, wrong: Sequence[str], result: RunResult, kept: KeptProcesses | None) -> None:
    """Locate what is wrong in stages that are not aligned, or note why that was not possible.

    The search may decide a stage that is inconclusive: it compares layer by layer, and in float64.
    """
    from twinalign.search.locator import SEARCHED_STAGES, locate  # here: most runs find nothing wrong

    failed = {stage for _, stage in recorder.without_float64}
    for stage in [stage for stage in wrong if stage in failed][:1]:
        result.stages[stage].notes.append("no search for faults: layers are compared in float64")
    searched = tuple(stage for stage in wrong if stage not in failed)
    if set(searched) & set(SEARCHED_STAGES):
        settings = dataclasses.replace(recorder.settings, stages=searched)
        try:
            result.located = locate(settings, recorder.progress, kept=kept)
        except SideCrashError as error:  # the verdict stands without it
            result.stages[searched[0]].notes.append(f"the search for faults failed: {error}")


def _decide_unmatched(result: RunResult) -> None:
    """Stages that differ beside tensors without a partner diverge if a fault was found in a layer that has one."""
    faults = result.located.faults if result.located is not None else []
    for stage, alone in result.unmatched.items():
        layers = {key.rpartition(".")[0] for key in alone}
        if any(fault.paddle_layer not in layers and "accepted" not in fault.evidence for fault in faults):
            result.stages[stage].verdict = DIVERGED


def _judge_stage(recorder: Recorder, stage: str, result: RunResult) -> None:
    """Compare the recordings of a stage, add notes for the reader, and write the classic log."""
    settings = recorder.settings
    recordings = StageRecordings.load(recorder, stage)
    comparison = compare_stage(stage, recordings, recorder.description)
    failed = {side: reason for (side, of), reason in recorder.without_float64.items() if of == stage}
    comparison.notes += [
        f"float64 does not run on the {side} side, so only float32 is judged: {reason}"
        for side, reason in failed.items()
    ]
    if failed:
        result.without_float64[stage] = failed
    if recordings.metadata_of("paddle", "float64").get("built_in_float64"):
        comparison.notes.append(BUILT_IN_FLOAT64)
    if settings.accuracy_compatible and (note := compatible_kernels_note(recorder, stage, recordings)):
        comparison.notes.append(note)
    unmatched = recorder.unmatched(stage)
    # Where everything has a partner and the results agree, they are the proof of the pairs that was lacking.
    proven = unmatched.in_pairs and comparison.verdict == ALIGNED
    if unmatched.note and not proven and not any(unmatched.note in before.notes for before in result.stages.values()):
        comparison.notes.insert(0, unmatched.note)
    structural = any(t.basis == "structure" and t.verdict == DIVERGED for t in comparison.tensors)
    # Values say nothing then, unless a layer is found that has its weights and differs.
    if unmatched.extra:
        comparison.verdict = DIVERGED
    elif unmatched.keys and comparison.verdict == DIVERGED and not structural:
        comparison.verdict = INCONCLUSIVE
        result.unmatched[stage] = list(unmatched.keys)
    result.stages[stage] = comparison
    write_text(settings.out / "log" / f"{stage}_diff.log", "\n".join(log_lines(comparison.classic)) + "\n")
    result.environment.update(recordings.environment())
    found = [t for t in comparison.tensors if t.verdict == comparison.verdict != ALIGNED]
    wrong = min(found, key=lambda t: float64_agrees(t.fp64_ratio), default=None)  # proven first
    text = f"{stage_number(stage)} {stage}: {comparison.verdict}, {len(comparison.tensors)} tensors"
    recorder.progress(FOUND, text + (f"; {wrong.name}: {wrong.reason}" if wrong is not None else ""))


def compatible_kernels_note(recorder: Recorder, stage: str, recordings: StageRecordings) -> str | None:
    """What paddle's accuracy-compatible kernels changed in the port; None for a stage without a model."""
    path = recorder.usual_kernels_path(stage)
    if not path.exists():
        return None
    environment = recordings.metadata("paddle").get("environment", {})
    flag = "FLAGS_use_accuracy_compatible_kernel"
    if flag not in environment.get("flags", {}):
        version = environment.get("versions", {}).get("paddle", "this paddle")
        return f"--accuracy-compatible changed nothing: paddle {version} has no {flag}, 3.3 and later have it"
    usual, compatible = Recording.load(path).arrays, recordings.arrays("paddle", recordings.judged_dtype) or {}
    changes = {
        name: float(np.abs(array.astype(np.float64) - usual[name]).max())
        for name, array in compatible.items()
        if name in usual and array.shape == usual[name].shape and array.tobytes() != usual[name].tobytes()
    }
    if not changes:
        return f"{flag} changed none of the port's {len(compatible)} tensors on this device"
    most = max(changes, key=lambda name: changes[name])
    count = f"{len(changes)} of the port's {len(compatible)} tensors"
    return f"{flag} changed {count}, {most} the most, by {changes[most]:.2g}"
