"""The selftest of `fix`: plant faults in a port's source, one at a time, and see which of them it repairs.

The right port is the judge: a repaired one has to compute what it computes, on inputs that `fix` has not seen.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.edits.source import read_source
from twinalign.errors import ExitCode, InputError, SideCrashError
from twinalign.files.recordings import Recording
from twinalign.notebook import Shown
from twinalign.planted_faults.source_faults import SourceFault, chosen_faults
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.repair.fix import FixResult, fix
from twinalign.replay.construction_places import own_files
from twinalign.runs.run_result import RunResult
from twinalign.runs.run_stages import run
from twinalign.sides import SIDES
from twinalign.verdict.array_difference import distance, root_mean_square
from twinalign.verdict.results import ALIGNED, JsonFields

CHECK_SEED = 4711
"""What is added to the seed for the inputs on which a repaired port is checked; `fix` has others of its own."""
_SAME = 1e-7
"""Of the largest value: more than two orders of one computation differ by in float64, constants kept in float32
included."""
_JUDGED = ("forward", "loss", "data", "metric")
Progress = Callable[[str, str], None]


@dataclasses.dataclass
class RepairTrial(JsonFields):
    """What became of one planted fault."""

    id: str
    operator: str
    file: str
    line: int
    before: str
    after: str
    changed: bool = False
    """Whether the fault changes what the port computes by more than rounding."""
    error: str | None = None
    """What the port stops with, which tells its author enough."""
    located: bool = False
    """Whether a fault was named whose source holds the planted line."""
    suggested: bool = False
    """Whether it came with a proven cause or an edit, in words."""
    repaired: bool = False
    wrong: bool = False
    """Whether edits were called proven with which the port is not right on other inputs."""
    found: list[str] = dataclasses.field(default_factory=list)
    edits: list[str] = dataclasses.field(default_factory=list)
    """Texts that were written."""
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        return self.changed and self.error is None


@dataclasses.dataclass(repr=False)
class RepairSelftest(Shown):
    """All planted faults with what became of them."""

    kind = "selftest_fix"

    case: str
    trials: list[RepairTrial] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def summary(self) -> dict[str, int]:
        counted = [trial for trial in self.trials if trial.counts]
        return {
            "faults": len(counted),
            **{name: sum(getattr(t, name) for t in counted) for name in ("located", "suggested", "repaired", "wrong")},
            "without_effect": sum(not trial.changed and trial.error is None for trial in self.trials),
            "stopped": sum(trial.error is not None for trial in self.trials),
        }

    @property
    def exit_code(self) -> ExitCode:
        """Aligned if every fault was located and no wrong edit was called proven."""
        summary = self.summary()
        sound = summary["located"] == summary["faults"] and not summary["wrong"]
        return ExitCode.ALIGNED if sound else ExitCode.DIVERGED

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "summary": self.summary(),
            "trials": [trial.to_json() for trial in self.trials],
            "seconds": round(self.seconds, 1),
        }


def selftest_of_fix(
    settings: RunSettings,
    count: int,
    progress: Progress = lambda side, text: None,
) -> RepairSelftest:
    """Plant so many faults, drawn by lot with the case's seed, in the port's own files, and let `fix` mend each.

    Raises:
        InputError: the port is not right as it is, or no file of its own has a place for a fault.
        SideCrashError: the port stops without any fault.
    """
    with RepairTrials(settings, progress) as trials:
        faults = chosen_faults(trials.texts, count, trials.seed)
        if not faults:
            raise InputError(
                f"selftest --fix: {settings.case} has no file of the port's own with a place for a fault; the port "
                "must stand in a file that the reference does not import"
            )
        started = time.perf_counter()
        result = RepairSelftest(trials.clean.case)
        for number, fault in enumerate(faults, start=1):
            progress("both", f"fault {number} of {len(faults)}: {fault.id}")
            result.trials.append(trials.of(fault))
        result.seconds = time.perf_counter() - started
        return result


class RepairTrials(contextlib.AbstractContextManager["RepairTrials"]):
    """A case whose port is right, in which faults are planted one after the other.

    Attributes:
        clean: the run of the right port.
        texts: real path -> text of the files that the port's side alone imports.
        seed: the case's.
    """

    def __init__(self, settings: RunSettings, progress: Progress = lambda side, text: None) -> None:
        self._settings, self._progress = dataclasses.replace(settings, fresh=True, sequential=True), progress
        self.seed = int(settings.options.get("seed", 0))
        self._kept = KeptProcesses(optimizers=True)
        try:
            self.clean, self._right = self._recorded({}, 0)
            if self.clean.verdict != ALIGNED:
                raise InputError(
                    f"selftest --fix: the port of {settings.case} is {self.clean.verdict} without any fault; mend it, "
                    "or accept what is a convention, first"
                )
            _, self._right_elsewhere = self._recorded({}, CHECK_SEED)
            self.texts = self._own_texts()
        except BaseException:
            self._kept.close()
            raise

    def __exit__(self, *raised: object) -> None:
        self._kept.close()

    def of(self, fault: SourceFault) -> RepairTrial:
        """Plant a fault, and see what `fix` makes of it."""
        edit = fault.edit
        trial = RepairTrial(fault.id, fault.operator, Path(edit.file).name, edit.line, edit.before, edit.after)
        planted = {edit.file: fault.planted_in(self.texts[edit.file])}
        started = time.perf_counter()
        try:
            mended = fix(dataclasses.replace(self._settings, sources=planted), self._progress, kept=self._kept)
        except (SideCrashError, InputError) as error:
            trial.error = str(error).splitlines()[0][:200]
            return trial
        finally:
            trial.seconds = round(time.perf_counter() - started, 1)
        trial.changed = bool(mended.found) or mended.verdict != ALIGNED or self._differs(planted)
        trial.found = [_told(found) for found in mended.found]
        at_place = [found for found in mended.found if _holds(found, fault)]
        trial.located = bool(at_place)
        trial.suggested = any(one["explanation"] or one["edit"] or one["reference_edits"] for one in at_place)
        trial.edits = list(dict.fromkeys(edit["after"] for edit in mended.edits))
        if mended.edits:
            trial.wrong = not self._is_right(mended, planted)
            trial.repaired = mended.verdict == ALIGNED and not trial.wrong
        return trial

    def _differs(self, sources: Mapping[str, str]) -> bool:
        return not _same(self._right, self._recorded(sources, 0)[1], ())

    def _is_right(self, mended: FixResult, planted: Mapping[str, str]) -> bool:
        """Whether the port with the patch is aligned where it is said to be, and computes what the right port does."""
        try:
            again, arrays = self._recorded({**planted, **mended.texts}, CHECK_SEED)
        except (SideCrashError, InputError):
            return False
        if mended.verdict != ALIGNED:  # another fault is left, which was not said to be mended
            return again.verdict == mended.verdict
        return again.verdict == ALIGNED and _same(self._right_elsewhere, arrays, _JUDGED)

    def _recorded(self, sources: Mapping[str, str], further_seed: int) -> tuple[RunResult, dict[str, np.ndarray]]:
        """A run without a search, and what the port computes: stage/name -> array, in float64 where it has it."""
        told = {**self._settings.options, "seed": str(self.seed + further_seed)} if further_seed else {}
        settings = dataclasses.replace(
            self._settings, sources=sources, locate=False, options={**self._settings.options, **told}
        )
        result = run(settings, self._progress, kept=self._kept)
        arrays: dict[str, np.ndarray] = {}
        for folder in (settings.out, settings.out / "float64"):
            for path in sorted(folder.glob("*_paddle.npy")):
                stage = path.name.removesuffix("_paddle.npy")
                arrays |= {f"{stage}/{name}": array for name, array in Recording.load(path).arrays.items()}
        return result, arrays

    def _own_texts(self) -> dict[str, str]:
        recorder = Recorder(self._settings, self._progress, self._kept)
        with recorder.started() as processes:
            files = {side: processes[side].call(own_files)["files"] for side in SIDES}
        return {file: read_source(file) for file in files["paddle"] if file not in files["ref"]}


def _same(right: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray], stages: Sequence[str]) -> bool:
    """Whether the port computes what the right one does, in these stages or in all."""
    judged = [name for name in right if not stages or name.partition("/")[0] in stages]
    return all(
        name in arrays and distance(right[name], arrays[name]) <= _SAME * (root_mean_square(right[name]) or 1.0)
        for name in judged
        if right[name].dtype.kind in "fiub"
    )


def _holds(found: Mapping[str, Any], fault: SourceFault) -> bool:
    """Whether the source of a found fault holds the planted line.

    What stands in no function belongs to no layer: then any fault that its change brings is at its place.
    """
    spans = found["evidence"].get("source", ())
    file, first, _, last, _ = fault.edit.file, *fault.edit.span
    inside = any(Path(span[0]).resolve() == Path(file) and span[1] <= last and first <= span[2] for span in spans)
    return inside or fault.outside_functions


def _told(found: Mapping[str, Any]) -> str:
    cause = found["explanation"]["id"] if found["explanation"] else "no known cause"
    return f"{found['paddle_layer'] or 'the model'}: {cause}"
