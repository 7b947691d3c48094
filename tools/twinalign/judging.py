"""From recordings to a verdict: compare each stage of a run, and write what reviewers read."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.case import STAGES
from twinalign.case_allowances import allowances_for
from twinalign.errors import ExitCode, InputError, SideCrashError
from twinalign.experiments import check_experiments, explain_training, record_seeds, record_switched
from twinalign.jobs import judged_precision
from twinalign.locate.locator import SEARCHED_STAGES, locate
from twinalign.ranks.comparing import join_comparisons, rounding_over_ranks
from twinalign.ranks.recordings import common_ranks, of_rank
from twinalign.recording import PROJECTIONS_SUFFIX, Recording, sample_positions, write_json, write_text
from twinalign.report import write_report
from twinalign.runner import SIDES, Recorder, RunSettings
from twinalign.tensorboard import TensorBoardLogs, fill_logs
from twinalign.training_verdict import compare_training
from twinalign.verdict import Described, compare_arrays, log_lines
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, TensorVerdict

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
    (settings.out / "summary.json").unlink(missing_ok=True)  # an old verdict must not stand beside new recordings
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


@dataclasses.dataclass
class StageRecordings:
    """The two or four recordings of one stage, by (side, dtype)."""

    by_key: dict[tuple[str, str], Recording]
    repeat: Recording | None = None
    """The reference in float32 from values moved by one unit in the last place, where its float64 is not to be had."""

    @classmethod
    def load(cls, recorder: Recorder, stage: str) -> StageRecordings:
        """Read what the recorder has made of a stage."""
        failed = [side for side in SIDES if (side, stage) in recorder.without_float64]
        keys = [(side, dtype) for side in SIDES for dtype in recorder.dtypes_of(stage)]
        found = {
            (side, dtype): Recording.load(recorder.recording_path(side, stage, dtype))
            for side, dtype in keys
            if dtype != "float64" or side not in failed
        }
        arbiter = found.get(("ref", "float64"))
        casts = arbiter is not None and arbiter.metadata.get("casts_to_float32")
        wanted = stage != "train" and ("ref" in failed or (casts and recorder.repeat_path(stage).exists()))
        return cls(found, Recording.load(recorder.repeat_path(stage)) if wanted else None)

    @property
    def ranks(self) -> int:
        """How many ranks made them; raises InputError where not all were made by as many, or an array is of none."""
        recordings = [*self.by_key.values(), *([self.repeat] if self.repeat else [])]
        return common_ranks(recordings)

    def of_rank(self, rank: int) -> StageRecordings:
        """What one of several ranks recorded."""
        found = {key: of_rank(recording, rank) for key, recording in self.by_key.items()}
        return StageRecordings(found, of_rank(self.repeat, rank) if self.repeat else None)

    def arrays(self, side: str, dtype: str) -> dict[str, np.ndarray] | None:
        """Arrays of a side in a precision, None where it was not recorded."""
        recording = self.by_key.get((side, dtype))
        return recording.arrays if recording else None

    @property
    def judged_dtype(self) -> str:
        """The precision that is judged: float32 or a half precision, unless float64 alone was asked for."""
        return judged_precision(self.by_key)

    def metadata(self, side: str) -> dict[str, Any]:
        """Metadata of a side in the judged precision."""
        return self.by_key[side, self.judged_dtype].metadata

    @property
    def casts_to_float32(self) -> int:
        """How often the reference's float64 run computes in float32."""
        arbiter = self.by_key.get(("ref", "float64"))
        return arbiter.metadata.get("casts_to_float32", 0) if arbiter else 0

    def environment(self) -> dict[str, Any]:
        """Both sides' environments."""
        return {side: self.metadata(side).get("environment", {}) for side in SIDES}

    def input_differences(self) -> list[str]:
        """Steps whose inputs were not the same on both sides, which would make any verdict worthless."""
        hashes = [self.metadata(side).get("inputs_sha256", {}) for side in SIDES]
        return [step for step in hashes[0] if hashes[1].get(step, hashes[0][step]) != hashes[0][step]]


def compare_stage(stage: str, recordings: StageRecordings, description: Mapping[str, Any]) -> Comparison:
    """Judge one stage from its recordings, rank by rank where several made them.

    Raises:
        InputError: the recordings were made by different numbers of ranks.
    """
    try:
        ranks = recordings.ranks
    except InputError as error:
        raise InputError(f"stage {stage}: {error}") from None
    if ranks == 1:
        return _compare(stage, recordings, description)
    of_ranks = [recordings.of_rank(rank) for rank in range(ranks)]
    dtype = recordings.judged_dtype
    rounding = rounding_over_ranks([(one.arrays("ref", dtype), one.arrays("ref", "float64")) for one in of_ranks])
    return join_comparisons([_compare(stage, one, description, rounding) for one in of_ranks])


def _compare(
    stage: str,
    recordings: StageRecordings,
    description: Mapping[str, Any],
    known_rounding: Mapping[str, float] | None = None,
) -> Comparison:
    dtype = recordings.judged_dtype
    reference, reproduced = recordings.arrays("ref", dtype), recordings.arrays("paddle", dtype)
    assert reference is not None
    assert reproduced is not None
    if stage == "train":
        high, other = (recordings.arrays(side, "float64") if dtype != "float64" else None for side in SIDES)
        return compare_training(reference, reproduced, high, other, dtype)
    comparison = _judge(stage, recordings, description, dtype != "float64", known_rounding)
    casts = recordings.repeat and recordings.casts_to_float32
    if comparison.verdict == DIVERGED and casts:
        # What the model itself rounds to float32 is no float64 to judge by.
        comparison = _judge(stage, recordings, description, False)
        comparison.notes.append(
            f"the reference computes in float32 in {casts} places of its float64 run, so that float32 alone is judged"
        )
    for step in recordings.input_differences():
        reason = "inputs(rng) gave each side other arrays: it must depend on rng alone"
        if "rank" in recordings.metadata("ref"):
            reason = "this rank has other samples on each side: share() must depend on its arguments alone"
        comparison.tensors.insert(0, TensorVerdict(f"inputs of step {step}", DIVERGED, reason, basis="structure"))
        comparison.verdict = DIVERGED
    return comparison


def _judge(
    stage: str,
    recordings: StageRecordings,
    description: Mapping[str, Any],
    with_float64: bool,
    known_rounding: Mapping[str, float] | None = None,
) -> Comparison:
    dtype = recordings.judged_dtype
    high = [recordings.arrays(side, "float64") if with_float64 else None for side in SIDES]
    return compare_arrays(
        recordings.arrays("ref", dtype) or {},
        recordings.arrays("paddle", dtype) or {},
        reference64=high[0],
        reproduced64=high[1],
        reference_repeat=recordings.repeat.arrays if recordings.repeat else None,
        repeats=recordings.metadata("ref").get("repeats"),
        accept=description.get("accept", ()),
        allowances=allowances_for(stage, recordings.metadata("paddle"), description),
        known_rounding=known_rounding,
        described=described_samples(recordings.metadata("ref")),
    )


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


def described_samples(metadata: Mapping[str, Any]) -> dict[str, Described]:
    """What the sampled names of a recording stand for."""
    return {
        name: _describe(tuple(entry["shape"]))
        for name, entry in metadata.get("sampled", {}).items()
        if not name.endswith(PROJECTIONS_SUFFIX)
    }


def _describe(shape: tuple[int, ...]) -> Described:
    size = int(np.prod(shape))

    def index_of(position: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(sample_positions(size)[position], shape))

    return Described(shape, index_of)
