"""The selftest: plant each fault and see whether it, and nothing else, is detected, located and explained."""

import concurrent.futures
import dataclasses
import fnmatch
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.errors import ExitCode, InputError, SideCrashError
from twinalign.files.recordings import Recording
from twinalign.notebook import Shown
from twinalign.planted_faults.catalogue import PlantableFault, catalogue
from twinalign.planted_faults.spoiled_port import explore, plant, unplant
from twinalign.recorder.recorder import PlannedRecording, Recorder, RunSettings
from twinalign.search.faults import Fault
from twinalign.search.locator import Locator
from twinalign.sides import INITIAL, SIDES
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.initial_weights import compare_initial
from twinalign.verdict.results import DIVERGED
from twinalign.verdict.stage_recordings import StageRecordings

_MODEL_STAGES = ("forward", "loss", "backward")
Recorded = Mapping[tuple[str, str], Recording]
"""Recordings by side and precision."""


@dataclasses.dataclass
class Trial:
    """One planted fault and whether it was found.

    Attributes:
        id, kind, text: of the fault.
        place: where it was planted.
        expected: the name by which the place must be called.
        stage: the first stage that must show it.
        flagged: the first stage that diverged, or None.
        changed: whether any recorded number changed; a fault that changes none cannot be detected and does not count.
        named: places that were located, with the cause of each (None: unexplained).
        right_place, right_cause: whether the place, and its cause, are among the named.
        extra: named places that are not at fault.
        error: why the trial could not be made.
    """

    id: str
    kind: str
    text: str
    place: str
    expected: str
    stage: str
    flagged: str | None = None
    changed: bool = False
    named: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    right_place: bool = False
    right_cause: bool = False
    extra: list[str] = dataclasses.field(default_factory=list)
    error: str | None = None
    seconds: float = 0.0

    @property
    def detected(self) -> bool:
        """Whether the right stage flagged it."""
        return self.flagged == self.stage

    @property
    def counts(self) -> bool:
        """Whether the trial says anything about the tool."""
        return self.changed or self.error is not None

    def note(self, found: Fault) -> None:
        """Put a located fault among the named."""
        cause = found.explanation.id if found.explanation else None
        self.named.append({"place": found.paddle_layer, "phase": found.phase, "cause": cause})

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "detected": self.detected}


@dataclasses.dataclass(repr=False)
class SelftestResult(Shown):
    """All trials, and the objections to the port without a fault.

    Attributes:
        trials: in the order of the catalogue.
        alarms: stages that diverged and places that were located in the port without a fault.
        left_out: faults of the catalogue for which the case has no place.
    """

    kind = "selftest"

    case: str
    trials: list[Trial] = dataclasses.field(default_factory=list)
    alarms: list[str] = dataclasses.field(default_factory=list)
    left_out: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def summary(self) -> dict[str, int]:
        """Number of trials that count, and of those that were detected, located and explained."""
        counted = [trial for trial in self.trials if trial.counts]
        return {
            "faults": len(counted),
            "detected": sum(trial.detected for trial in counted),
            "located": sum(trial.right_place for trial in counted),
            "explained": sum(trial.right_cause for trial in counted),
            "false_alarms": len(self.alarms) + sum(len(trial.extra) for trial in counted),
            "without_effect": len(self.trials) - len(counted),
        }

    @property
    def exit_code(self) -> ExitCode:
        """Aligned where every fault was detected and nothing else was."""
        summary = self.summary()
        sound = summary["detected"] == summary["faults"] and not summary["false_alarms"]
        return ExitCode.ALIGNED if sound else ExitCode.DIVERGED

    def to_json(self) -> dict[str, Any]:
        """In the form of `selftest --json`."""
        return {
            "case": self.case,
            "summary": self.summary(),
            "alarms": self.alarms,
            "trials": [trial.to_json() for trial in self.trials],
            "left_out": self.left_out,
            "seconds": round(self.seconds, 1),
        }


class Selftest:
    """Plants faults into the port of a case, one at a time."""

    def __init__(
        self,
        settings: RunSettings,
        faults: Sequence[str] = (),
        locate: bool = True,
        keep: bool = False,
        progress: Callable[[str, str], None] = lambda side, text: None,
    ) -> None:
        """Check the fault ids; raises InputError if there is no such case, stage or fault.

        All faults of the catalogue are planted by default; with `locate` they are located and explained too, and with
        `keep` the recordings of each spoiled port stay in `out/planted/ID`. `progress` is given a side and a text.
        """
        unknown = [fault for fault in faults if fault not in catalogue()]
        if unknown:
            raise InputError(f"--faults {unknown[0]}: no such fault; twinalign selftest --list names them")
        self._recorder = Recorder(settings, progress)
        self._faults = [fault for fault in catalogue().values() if not faults or fault.id in faults]
        self._locate = locate
        self._keep = keep
        self._progress = progress
        self._clean: dict[tuple[str, str, str], Recording] = {}
        self._weights: Mapping[str, Mapping[str, Any]] = {}
        self._initial: dict[str, str | None] = {}
        """What of the port without a fault starts otherwise already."""

    def places(self) -> dict[str, str]:
        """Where each of the faults would go in this case; records nothing."""
        with self._recorder.running() as self._weights:
            return self._explore()

    def run(self, tell: Callable[[Trial], None] = lambda trial: None) -> SelftestResult:
        """Make every trial, and `tell` each as it is made: a page that takes an hour goes on where it was cut off.

        Raises SideCrashError if a process died, or the case's own code raises without a fault.
        """
        started = time.perf_counter()
        with self._recorder.running() as self._weights:
            places = self._explore()
            result = SelftestResult(self._recorder.description["name"])
            result.left_out = [fault.id for fault in self._faults if fault.id not in places]
            trials = [fault for fault in self._faults if fault.id in places]
            result.alarms = self._look_at_clean(self._needed_stages(trials))
            for number, fault in enumerate(trials, start=1):
                self._progress("both", f"fault {number} of {len(trials)}: {fault.id}")
                result.trials.append(self._try(fault, places[fault.id]))
                tell(result.trials[-1])
        result.seconds = time.perf_counter() - started
        return result

    def _request(self, function: Callable[..., dict[str, Any]], **values: Any) -> dict[str, Any]:
        return self._recorder.processes["paddle"].call(function, **values)

    def _explore(self) -> dict[str, str]:
        part = self._recorder.description["parts"]["forward"]
        return dict(self._request(explore, weights=self._weights[part]["paddle"])["places"])

    def _needed_stages(self, faults: Sequence[PlantableFault]) -> list[str]:
        needed = {stage for fault in faults for stage in self._stages_of(fault)}
        return [stage for stage in (*self._recorder.description["stages"], INITIAL) if stage in needed]

    def _stages_of(self, fault: PlantableFault) -> list[str]:
        """The stages in which a fault can show, in the guide's order, up to the one in which it must."""
        if fault.stage not in _MODEL_STAGES or fault.kind in ("optimizer", "schedule"):
            return [fault.stage]  # neither is there before the first step
        before = _MODEL_STAGES[: _MODEL_STAGES.index(fault.stage) + 1]
        return [stage for stage in before if stage in self._recorder.description["stages"]]

    def _look_at_clean(self, stages: Sequence[str]) -> list[str]:
        """Record both sides without a fault; returns the stages and places that are objected to."""

        def all_of(side: str) -> dict[tuple[str, str, str], Recording]:
            recorded = {stage: record(self._recorder, self._weights, side, stage) for stage in stages}
            return {(stage, *key): recording for stage in stages for key, recording in recorded[stage].items()}

        with concurrent.futures.ThreadPoolExecutor(len(SIDES)) as pool, self._recorder.closing_on_error():
            for found in pool.map(all_of, SIDES):
                self._clean.update(found)
        self._initial = self._initial_differences({}) if INITIAL in stages else {}
        stages = [stage for stage in stages if stage != INITIAL]
        alarms = [stage for stage in stages if self._diverges(stage, {})]
        if self._locate and stages:
            self._progress("both", "looking for faults where there are none")
            alarms += [fault.paddle_layer for fault in self._located(stages)]
        return alarms

    def _diverges(self, stage: str, port: Recorded) -> bool:
        """Whether a stage diverges with these recordings of the port in place of those without a fault."""
        clean = {(side, dtype): recording for (at, side, dtype), recording in self._clean.items() if at == stage}
        return diverges(self._recorder, stage, {**clean, **port})

    def _located(self, stages: Sequence[str]) -> list[Fault]:
        found = Locator(self._recorder, self._weights).locate(stages).faults
        return [fault for fault in found if "accepted" not in fault.evidence]

    def _try(self, fault: PlantableFault, place: str) -> Trial:
        expected = fault.named if fault.named is not None else place
        trial = Trial(fault.id, fault.kind, fault.text, place, expected, fault.stage)
        started = time.perf_counter()
        try:
            self._request(plant, fault=fault.id)
            if fault.stage == INITIAL:
                self._judge_initial(fault, trial)
            else:
                self._detect(fault, trial)
            if self._locate and trial.changed and fault.stage != INITIAL:
                self._judge(fault, trial, self._located([trial.flagged or fault.stage]))
        except SideCrashError as error:
            trial.error = str(error)
            if not self._recorder.processes["paddle"].alive:
                raise
        self._request(unplant)
        if not self._keep:
            tidy(self._recorder)
        trial.seconds = round(time.perf_counter() - started, 2)
        return trial

    def _detect(self, fault: PlantableFault, trial: Trial) -> None:
        for stage in self._stages_of(fault):
            port = record(self._recorder, self._weights, "paddle", stage, f"planted/{fault.id}")
            trial.changed |= any(differ(self._clean[stage, *key], recording) for key, recording in port.items())
            if self._diverges(stage, port):
                trial.flagged = stage
                return

    def _initial_differences(self, port: Recorded) -> dict[str, str | None]:
        """The port's name of each tensor that starts otherwise, with the cause."""
        clean = {(side, dtype): recording for (at, side, dtype), recording in self._clean.items() if at == INITIAL}
        found = compare_initial(StageRecordings({**clean, **port}))
        return {one.port_name: one.cause for one in found.differences}

    def _judge_initial(self, fault: PlantableFault, trial: Trial) -> None:
        """What the check of initial weights says beyond what it says of the port without a fault."""
        port = record(self._recorder, self._weights, "paddle", INITIAL, f"planted/{fault.id}")
        found = self._initial_differences(port)
        new = {name: cause for name, cause in found.items() if self._initial.get(name, "") != cause}
        # Of a tensor that starts otherwise without the fault, too, nothing more can be seen.
        trial.changed = bool(new) or not any(name.rpartition(".")[0] == trial.expected for name in self._initial)
        trial.flagged = INITIAL if new else None
        for name, cause in new.items():
            place = name.rpartition(".")[0]
            trial.named.append({"place": place, "phase": INITIAL, "cause": cause})
            if place == trial.expected:
                trial.right_place = True
                trial.right_cause |= cause in fault.causes
            else:
                trial.extra.append(place)

    @staticmethod
    def _judge(fault: PlantableFault, trial: Trial, located: Sequence[Fault]) -> None:
        for found in located:
            trial.note(found)
            if found.paddle_layer == trial.expected or _matches(found.paddle_layer, fault.also):
                trial.right_place = True
                trial.right_cause |= found.explanation is not None and _own_causes(found) <= set(fault.causes)
            elif not (_matches(found.paddle_layer, fault.besides) or _takes_over(fault, found.paddle_layer, trial)):
                trial.extra.append(found.paddle_layer)


def _own_causes(found: Fault) -> set[str]:
    """The causes of a fault (joined by + in its id), without the conventions that the case accepts."""
    causes = set(found.explanation.id.split("+")) if found.explanation else set()
    return causes - set(found.evidence.get("accepted_causes", ()))


def _matches(place: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(place, pattern) for pattern in patterns)


def _takes_over(fault: PlantableFault, place: str, trial: Trial) -> bool:
    """Whether a place is the same layer of another network in the model, which averages the spoiled weights."""
    return fault.kind == "weights" and place.partition(".")[2] == trial.expected.partition(".")[2]


def record(
    recorder: Recorder, weights: Mapping[str, Mapping[str, Any]], side: str, stage: str, folder: str = ""
) -> Recorded:
    """Let one side record a stage in its precisions, in a folder beside the run's own recordings."""
    found = {}
    for dtype in recorder.dtypes_of(stage):
        path = recorder.recording_path(side, stage, dtype)
        job = PlannedRecording(side, stage, dtype, path.parent / folder / path.name)
        recorder.make(job, weights)
        found[side, dtype] = Recording.load(job.path)
    return found


def tidy(recorder: Recorder) -> None:
    """Remove the recordings of spoiled ports."""
    for folder in (recorder.out, recorder.out / "float64"):
        shutil.rmtree(folder / "planted", ignore_errors=True)


def diverges(recorder: Recorder, stage: str, recorded: Recorded) -> bool:
    """Whether the recordings of a stage diverge."""
    return compare_stage(stage, StageRecordings(dict(recorded)), recorder.description).verdict == DIVERGED


def differ(first: Recording, second: Recording) -> bool:
    """Whether two recordings differ in any number, name or shape."""
    if first.arrays.keys() != second.arrays.keys():
        return True
    pairs = ((array, second.arrays[name]) for name, array in first.arrays.items())
    return any(a.shape != b.shape or not np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
