"""From recordings to a verdict: compare each stage of a run, and write what reviewers read."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.case import STAGES
from twinalign.errors import ExitCode, SideCrashError
from twinalign.experiments import check_experiments, explain_training, record_seeds, record_switched
from twinalign.locate.locator import SEARCHED_STAGES, locate
from twinalign.recording import Recording, write_json, write_text
from twinalign.report import write_report
from twinalign.runner import Recorder, RunSettings
from twinalign.stage_verdict import StageRecordings, compare_stage
from twinalign.tensorboard import TensorBoardLogs, fill_logs
from twinalign.verdict import log_lines
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE

if TYPE_CHECKING:
    from twinalign.locate import LocateResult
    from twinalign.verdict import Comparison

_EXIT_CODES = {ALIGNED: ExitCode.ALIGNED, DIVERGED: ExitCode.DIVERGED, INCONCLUSIVE: ExitCode.INCONCLUSIVE}

STAGES_IN_CASES_MODE = {"forward", "loss", "backward"}
"""Stages that run the model in training or evaluation mode as `Case.train_mode` has it."""


@dataclasses.dataclass
class RunResult:
    """The verdict of a run with its evidence, stage by stage."""

    case: str
    stages: dict[str, Comparison]
    environment: dict[str, Any]
    seconds: float
    located: LocateResult | None = None
    """What is at fault in the stages that diverged, where that was looked for."""
    precision: str = "both"
    """As of `RunSettings`."""
    accuracy_compatible: bool = False
    """Likewise."""
    ranks: int = 1
    """Likewise."""
    without_float64: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    """Stage -> side -> what the model raised in float64 there."""
    not_checked: list[str] = dataclasses.field(default_factory=list)
    """As of the function of that name."""

    @property
    def verdict(self) -> str:
        """The gravest verdict of the stages: diverged, inconclusive, aligned."""
        found = {comparison.verdict for comparison in self.stages.values()}
        return next((verdict for verdict in (DIVERGED, INCONCLUSIVE) if verdict in found), ALIGNED)

    @property
    def exit_code(self) -> ExitCode:
        """What the command ends with."""
        return _EXIT_CODES[self.verdict]

    def _repr_html_(self) -> str:
        from twinalign.notebook import as_html
        from twinalign.tables import print_run

        return as_html(lambda console: print_run(self, console=console))

    def to_json(self) -> dict[str, Any]:
        """In the form of `summary.json`."""
        return {
            "case": self.case,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 1),
            "precision": self.precision,
            "accuracy_compatible": self.accuracy_compatible,
            **({"ranks": self.ranks} if self.ranks > 1 else {}),
            "not_checked": self.not_checked,
            "stages": {stage: self._stage_to_json(stage) for stage in self.stages},
            "environment": self.environment,
            **({"located": self.located.to_json()} if self.located is not None else {}),
        }

    def _stage_to_json(self, stage: str) -> dict[str, Any]:
        failed = self.without_float64.get(stage)
        return {**self.stages[stage].to_json(), **({"without_float64": failed} if failed else {})}


def run(
    settings: RunSettings,
    progress: Callable[[str, str], None] = lambda side, text: None,
    on_stage: Callable[[str, Comparison], None] = lambda stage, comparison: None,
) -> RunResult:
    """Record what is missing, compare every stage, and write logs, `summary.json` and `report.html`.

    Where stages diverge, the layers and parts at fault are located.

    Raises:
        InputError: the settings, the case or its data are at fault.
        SideCrashError: the process of a side died, or the case's own code raised.
    """
    started = time.perf_counter()
    check_experiments(settings)
    recorder = Recorder(settings, progress)
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
        else:
            _judge_stage(recorder, stage, result, on_stage)
    for stage in stages:
        record_seeds(recorder, progress, logs)
        if logs is not None:
            fill_logs(logs, recorder)
            recorder.points = logs.named(" switched").points
        record_switched(recorder, progress)
        _judge_stage(recorder, stage, result, on_stage)
        explain_training(recorder, result.stages[stage], progress)
    if logs is not None:
        logs.close()
    result.case = recorder.description["name"]
    result.not_checked = not_checked(recorder.description, tuple(result.stages))
    result.stages = {stage: result.stages[stage] for stage in recorder.description["stages"] if stage in result.stages}
    diverged = tuple(stage for stage, comparison in result.stages.items() if comparison.verdict == DIVERGED)
    if settings.locate and recorder.without_float64 and diverged:
        result.stages[diverged[0]].notes.append("nothing was located: layers are judged in float64")
    elif settings.locate and set(diverged) & set(SEARCHED_STAGES):
        try:
            result.located = locate(dataclasses.replace(settings, stages=diverged), progress)
        except SideCrashError as error:  # the verdict stands without it
            result.stages[diverged[0]].notes.append(f"nothing was located: {error}")
    result.seconds = time.perf_counter() - started
    write_json(settings.out / "summary.json", result.to_json())
    write_report(settings.out, settings.language)
    return result


def not_checked(description: Mapping[str, Any], checked: Collection[str]) -> list[str]:
    """What a verdict says nothing about: stages that were not run, and `training_mode` where evaluation mode was."""
    found = [stage for stage in STAGES if stage not in checked]
    evaluated = STAGES_IN_CASES_MODE & set(checked)
    return found + (["training_mode"] if evaluated and not description.get("train_mode", True) else [])


def _judge_stage(
    recorder: Recorder, stage: str, result: RunResult, on_stage: Callable[[str, Comparison], None]
) -> None:
    """Compare the recordings of a stage, note what the verdict must be read with, and write the classic log."""
    settings = recorder.settings
    recordings = StageRecordings.load(recorder, stage)
    comparison = compare_stage(stage, recordings, recorder.description)
    failed = {side: reason for (side, of), reason in recorder.without_float64.items() if of == stage}
    comparison.notes += [
        f"float64 does not run on the {side} side, so that float32 alone is judged: {reason}"
        for side, reason in failed.items()
    ]
    if failed:
        result.without_float64[stage] = failed
    if settings.accuracy_compatible and (note := compatible_kernels_note(recorder, stage, recordings)):
        comparison.notes.append(note)
    result.stages[stage] = comparison
    write_text(settings.out / "log" / f"{stage}_diff.log", "\n".join(log_lines(comparison.classic)) + "\n")
    result.environment.update(recordings.environment())
    on_stage(stage, comparison)


def compatible_kernels_note(recorder: Recorder, stage: str, recordings: StageRecordings) -> str | None:
    """What paddle's accuracy-compatible kernels changed in the port, None for a stage that runs no model."""
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
