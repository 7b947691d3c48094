"""The individual recordings of a run: which there are, their paths, and which of them have to be made."""

import dataclasses
import difflib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case.loading import resolve_case
from twinalign.conversion.initial_weights import Unmatched, WeightFiles, unmatched_of
from twinalign.conversion.options import Options
from twinalign.errors import InputError
from twinalign.files.freshness import interpreter_versions, is_fresh
from twinalign.files.rank_recordings import is_ranked
from twinalign.files.reader import read_arrays
from twinalign.files.recordings import PLANNED_STEPS, Recording, hash_arrays, read_metadata, write_json
from twinalign.processes.machine import require_writable
from twinalign.recorder.run_settings import RunSettings, chosen_stages, require_file_names
from twinalign.sides import HALVES, INITIAL, SIDES, STAGES
from twinalign.stages import STAGE_BY_NAME

STAGES_IN_CASES_MODE = {"forward", "loss", "backward"}
"""Stages that run the model in training or evaluation mode as `Case.train_mode` has it."""


@dataclasses.dataclass(frozen=True)
class PlannedRecording:
    """One recording to be made or reused."""

    side: str
    stage: str
    dtype: str
    path: Path
    compatible: bool = False
    """Whether paddle's accuracy-compatible kernels compute it, where it has them."""
    built_in_float64: bool = False
    """Whether the model is built in float64, and not in float32 and then widened."""


def recorded_precisions(stage: str, precision: str, float64_train_steps: int) -> list[str]:
    """The precisions in which a run of `precision` records a stage; the first is the judged one."""
    has_float64 = STAGE_BY_NAME[stage].float64 and (stage != "train" or float64_train_steps > 0)
    half = [precision, "float64"] if STAGE_BY_NAME[stage].judged_in_any_precision else ["float32"]
    wanted = {"both": ["float32", "float64"], "float32": ["float32"], "float64": ["float64"]}.get(precision, half)
    return [dtype for dtype in wanted if dtype != "float64" or has_float64] or ["float32"]


def judged_precision(keys: Iterable[tuple[str, str]]) -> str:
    """The judged precision among (side, precision): float32 or a half, or float64 if there is nothing else."""
    return next((dtype for _, dtype in keys if dtype != "float64"), "float64")


def recorded_identity(
    identity: Mapping[str, Mapping[str, Any]], side: str, stage: str, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """What identifies a recording; settings are included if they change its numbers.

    Args:
        identity: of both sides: case, options, device and interpreter.
        asked: `precision`, `accuracy_compatible` and `ranks`, as in `RunSettings` and in `summary.json`.
    """
    found: dict[str, Any] = dict(identity[side])
    if is_ranked(stage, asked.get("ranks", 1)):
        found["ranks"] = asked["ranks"]
    if not STAGE_BY_NAME[stage].judged_in_any_precision:
        return found
    if asked.get("accuracy_compatible") and side == "paddle":
        found["accuracy_compatible"] = True
    if asked.get("precision") in HALVES:
        found["rounded_to"] = asked["precision"]
    return found


def not_checked(description: Mapping[str, Any], checked: Collection[str]) -> list[str]:
    """What a verdict does not cover: stages that were not run, and `training_mode` if only evaluation mode ran."""
    found = [stage for stage in STAGES if stage not in checked]
    evaluated = STAGES_IN_CASES_MODE & set(checked)
    return found + (["training_mode"] if evaluated and not description.get("train_mode", True) else [])


def forget_port(folder: Path) -> None:
    """Remove from a run's folder what was made of the port; the reference's recordings stay."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if "_paddle" in path.name or path.name.endswith("_ledger.json"):
            path.unlink()


class RecordingPlan:
    """The recordings of a case on both sides, as the settings require them."""

    def __init__(self, settings: RunSettings, versions: Callable[[str, str], dict[str, str]] | None = None) -> None:
        """Check the settings; `versions` is asked instead of `interpreter_versions`.

        Raises:
            InputError: an unknown case or stage, or an unwritable output folder.
        """
        self.settings = settings
        self.resolved = resolve_case(settings.case)
        known = (*STAGES, INITIAL)
        unknown = [stage for stage in settings.stages if stage not in known]
        if unknown:
            close = difflib.get_close_matches(unknown[0], known, 1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise InputError(f"--stages {unknown[0]}: unknown stage; {meant}the stages are {', '.join(known)}")
        if settings.ranks < 1:
            raise InputError(f"--ranks {settings.ranks}: give the number of processes a side, 1 or more")
        self.out = settings.out
        require_writable(self.out)
        interpreters = {side: settings.pythons.get(side) or sys.executable for side in SIDES}
        asked: dict[str, dict[str, str]] = {}
        for side, python in interpreters.items():  # both sides usually have the same one
            if python not in asked:
                asked[python] = (versions or interpreter_versions)(python, side)
        self.identity = {
            side: {
                "case": self.resolved,
                "options": dict(settings.options),
                "device": settings.device,
                "interpreter": asked[python],
            }
            for side, python in interpreters.items()
        }
        self.description: dict[str, Any] = {}

    def recording_path(self, side: str, stage: str, dtype: str) -> Path:
        """Path of a recording: the field's names in `out`, float64 under `out/float64`."""
        folder = self.out if dtype == "float32" else self.out / dtype
        return folder / f"{STAGE_BY_NAME[stage].file_stem}_{side}.npy"

    def usual_kernels_path(self, stage: str) -> Path:
        """Path of the port's second recording, by paddle's usual kernels, beside an accuracy-compatible one."""
        return self.out / "usual_kernels" / f"{STAGE_BY_NAME[stage].file_stem}_paddle.npy"

    def repeat_path(self, stage: str) -> Path:
        """Path of the reference's repeat from values moved by last bits, made if float64 failed or cannot decide."""
        return self.out / "repeat" / f"{STAGE_BY_NAME[stage].file_stem}_ref.npy"

    def unmatched(self, stage: str) -> Unmatched:
        """What has no proven partner in the stage's model."""
        if not STAGE_BY_NAME[stage].needs_model:
            return Unmatched()
        return unmatched_of(self._ledger(self.description["parts"][stage]))

    def _ledger(self, part: str) -> Path:
        return self.out / "weights" / f"{part}_ledger.json"

    def _conversion_of(self, part: str) -> Options:
        return Options(
            remedy="Make the port's layers those of the reference",
            rename=self.description["rename"].get(part, {}),
            allow_missing=self.description["allow_missing"].get(part, ()),
            allow_unexpected=self.description["allow_unexpected"].get(part, ()),
            rules=self.description.get("rules", ()),
        )

    def _stages(self) -> list[str]:
        return chosen_stages(self.settings, self.description)

    def dtypes_of(self, stage: str) -> list[str]:
        return recorded_precisions(stage, self.settings.precision, self.description["float64_train_steps"])

    @property
    def _half(self) -> str | None:
        return self.settings.precision if self.settings.precision in HALVES else None

    def _planned(self, sides: Sequence[str]) -> list[PlannedRecording]:
        # float64 recordings come last in a stage: the model object is rebuilt only when the precision changes.
        wanted = [
            PlannedRecording(side, stage, dtype, self.recording_path(side, stage, dtype), self._compatible(side, stage))
            for stage in self._stages()
            for dtype in self.dtypes_of(stage)
            for side in sides
        ]
        return wanted + [
            PlannedRecording("paddle", stage, self.dtypes_of(stage)[0], self.usual_kernels_path(stage))
            for stage in self._stages()
            if "paddle" in sides and self._compatible("paddle", stage)
        ]

    def _in_turn(self, wanted: Sequence[PlannedRecording], sides: Sequence[str]) -> list[list[PlannedRecording]]:
        """What each of the sides is to record, in its order."""
        # The recordings of one model in one precision follow each other, so that it is built once. float64 fills
        # the memory most, and the sides take its models in opposite order: a large one then fills one process at a
        # time. The second side has all its float32 behind it by then, and takes that in the order of the first.
        parts = list(dict.fromkeys(self.description["parts"].values()))

        def order(one: PlannedRecording) -> tuple[bool, int, str, bool]:
            place, late = parts.index(self.description["parts"][one.stage]), one.dtype == "float64"
            # Initial values come first: they are still in the model that the weights were taken from.
            end = place, one.dtype, one.stage != INITIAL
            return (False, *end) if one.side == sides[0] else (late, -place if late else place, *end[1:])

        return [sorted((one for one in wanted if one.side == side), key=order) for side in sides]

    def _compatible(self, side: str, stage: str) -> bool:
        return self.settings.accuracy_compatible and side == "paddle" and STAGE_BY_NAME[stage].judged_in_any_precision

    def _identity_of(self, one: PlannedRecording) -> dict[str, Any]:
        ranks, precision = self.settings.ranks, self.settings.precision
        asked = {"precision": precision, "accuracy_compatible": one.compatible, "ranks": ranks}
        found = recorded_identity(self.identity, one.side, one.stage, asked)
        return found | ({"plan": dict(self.settings.plan)} if self.settings.plan and one.stage == "train" else {})

    def _stale(
        self, sides: Sequence[str], weights: Mapping[str, Mapping[str, Any]] | None = None
    ) -> list[PlannedRecording]:
        stale = []
        for one in self._planned(sides):
            metadata = {} if self.settings.fresh else read_metadata(one.path)
            part = self.description["parts"][one.stage]
            other_weights = weights and part in weights and metadata.get("weights_sha256") != weights[part]["sha256"]
            outdated = other_weights and STAGE_BY_NAME[one.stage].needs_model
            unmeasured = self.is_repeated(one) and read_metadata(self.repeat_path(one.stage)).get("dtype") != one.dtype
            if outdated or unmeasured or not is_fresh(metadata, self._identity_of(one)):
                stale.append(one)
        return stale

    def _weights_stand(self, part: str, files: WeightFiles, stale: Sequence[PlannedRecording]) -> bool:
        """Whether the reference's weights are those with which all its recordings of a part, none stale, were made."""
        of_part = [
            one
            for one in self._planned(["ref"])
            if self.description["parts"][one.stage] == part and STAGE_BY_NAME[one.stage].needs_model
        ]
        if not of_part or any(one in stale for one in of_part) or not files.all_exist():
            return False
        sha256 = hash_arrays(read_arrays(files.arrays))
        return all(read_metadata(one.path).get("weights_sha256") == sha256 for one in of_part)

    def is_repeated(self, one: PlannedRecording) -> bool:
        """Whether the reference is repeated from moved values because nothing else measures the rounding of float64."""
        needs = STAGE_BY_NAME[one.stage].needs_model and one.stage != "train"  # which has a repeat of its own
        return needs and one.side == "ref" and self.settings.precision == "float64" == one.dtype

    def _known_description(self) -> dict[str, Any]:
        known = read_metadata(self.out / "case")
        return known.get("description", {}) if known.get("identity") == self.identity else {"stages": []}

    def _keep_description(self, description: dict[str, Any]) -> None:
        require_file_names(self.resolved, description["parts"].values())
        self.description = description
        write_json(self.out / "case.json", {"identity": self.identity, "description": description})

    def fresh_arrays(self, side: str, stage: str, dtype: str = "") -> dict[str, np.ndarray]:
        """Arrays of a recording that is up to date, by default in the judged precision; empty if there is none."""
        dtype = dtype or self.dtypes_of(stage)[0]
        one = PlannedRecording(side, stage, dtype, self.recording_path(side, stage, dtype))
        return Recording.load(one.path).arrays if is_fresh(read_metadata(one.path), self._identity_of(one)) else {}

    def steps_of_other(self, one: PlannedRecording) -> dict[str, int]:
        """`steps` of a training that the other side has made longer than the case says, and that stands."""
        if one.stage != "train" or one.dtype != "float64":
            return {}
        side = next(side for side in SIDES if side != one.side)
        other = dataclasses.replace(one, side=side, path=self.recording_path(side, one.stage, one.dtype))
        metadata = read_metadata(other.path)
        stands = PLANNED_STEPS in metadata and not self.settings.fresh and is_fresh(metadata, self._identity_of(other))
        return {"steps": metadata[PLANNED_STEPS]} if stands else {}
