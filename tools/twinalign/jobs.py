"""What a run is asked for, and the single recordings that it is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from twinalign.errors import InputError
from twinalign.halves import HALVES
from twinalign.ranks.recordings import is_ranked
from twinalign.stages import STAGE_BY_NAME
from twinalign.verdict.equivalence import DEFAULT_MARGIN

SIDES = ("ref", "paddle")
_LONGEST_NAME = 200
"""Bytes of a case's name: file systems take 255, and the files that are called by it have endings."""
PRECISIONS = ("float32", "float64", "both", *HALVES)
"""`both` is float32 judged by float64; a half precision is judged by float64 as well."""
SWAPS = ("data", "init", "updates", "network")
"""The reference's batches, its first weights, its weights after each step; `network`: all three, so that the port's
network is left alone."""


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """What a run is asked for; the fields are the options of `twinalign run`."""

    case: str
    out: Path = Path("result")
    stages: tuple[str, ...] = ()
    device: str = "cpu"
    precision: str = "both"
    pythons: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fresh: bool = False
    sequential: bool = False
    locate: bool = True
    language: str = "en"
    accuracy_compatible: bool = False
    debug: bool = False
    seeds: int = 1
    """Trainings a side, of as many seeds: their outcomes are tested for equivalence."""
    margin: float = DEFAULT_MARGIN
    """In points: how far apart the means of the outcomes may be and count as equivalent."""
    switch_at: int = 0
    """Step after which one more training goes on in the other framework; 0 for none."""
    switch_from: str = "ref"
    """The side that such a training begins on."""
    swaps: tuple[str, ...] = ()
    """What of the reference is put into the port's training, one after the other (`SWAPS`)."""
    ranks: int = 1
    """Processes a side that record together what means something with several (`RANKED_STAGES`)."""
    tensorboard: bool = False
    """Whether the curves of trainings are written as TensorBoard logs while they train."""
    plan: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of a `TrainingPlan` for the train stage."""


def experiments(settings: RunSettings) -> list[str]:
    """The options that ask for more of the train stage than one training a side."""
    asked = {"--seeds": settings.seeds > 1, "--switch-at": settings.switch_at > 0, "--swap": bool(settings.swaps)}
    return [option for option, wanted in asked.items() if wanted]


def require_file_names(case: str, parts: Iterable[str]) -> None:
    """Raise InputError where a part of a case has a name by which no files can be called, here or in a bundle."""
    from twinalign.bundle.layout import fault_of_name, ledger_member  # which itself needs `SIDES`

    for part in parts:
        long = len(part.encode("utf-8", "replace")) > _LONGEST_NAME
        if long or "/" in part or fault_of_name(ledger_member(part)) is not None:
            raise InputError(
                f"{case}: no file can be called {part[:80]!r}{'…' * (len(part) > 80)}, and weights are kept in files "
                f"of the case's name: give it a `name` without / \\ : and letters that are not seen, of at most "
                f"{_LONGEST_NAME} bytes"
            )


def chosen_stages(settings: RunSettings, description: Mapping[str, Any]) -> list[str]:
    """The stages of a case that a run is to take; raises InputError on what the case does not define."""
    offered, name = description["stages"], description.get("name", "")
    refused = [f"--stages {stage}: case {name} does not define it" for stage in settings.stages if stage not in offered]
    if offered and "train" not in offered:
        wanted = [*experiments(settings), *(["--tensorboard"] if settings.tensorboard else [])]
        refused += [f"{option}: case {name} does not define train" for option in wanted]
    if refused:
        raise InputError(f"{refused[0]}; it has {', '.join(offered)} (see the methods of twinalign.Case)")
    return [stage for stage in offered if not settings.stages or stage in settings.stages]


@dataclasses.dataclass(frozen=True)
class Job:
    """One recording to be made or reused."""

    side: str
    stage: str
    dtype: str
    path: Path
    compatible: bool = False
    """Whether paddle's accuracy-compatible kernels compute it, where it has them."""


@dataclasses.dataclass(frozen=True)
class WeightFiles:
    """Where one side's initial weights, the layout that its model has, and the inputs of a trial are kept."""

    arrays: Path
    layout: Path
    inputs: Path

    @classmethod
    def of(cls, folder: Path, part: str, side: str) -> WeightFiles:
        """The files of a part of a case."""
        stem = folder / f"{part}_{side}"
        return cls(*(stem.with_name(stem.name + end) for end in (".npz", "_layout.json", "_inputs.npz")))

    def request(self) -> dict[str, str]:
        """As a recorder takes them."""
        return {"arrays": str(self.arrays), "layout": str(self.layout), "inputs": str(self.inputs)}


def recorded_precisions(stage: str, precision: str, float64_train_steps: int) -> list[str]:
    """In which precisions a run of `precision` records a stage, the one that is judged first."""
    has_float64 = STAGE_BY_NAME[stage].float64 and (stage != "train" or float64_train_steps > 0)
    half = [precision, "float64"] if STAGE_BY_NAME[stage].needs_model else ["float32"]
    wanted = {"both": ["float32", "float64"], "float32": ["float32"], "float64": ["float64"]}.get(precision, half)
    return [dtype for dtype in wanted if dtype != "float64" or has_float64] or ["float32"]


def judged_precision(keys: Iterable[tuple[str, str]]) -> str:
    """The one that is judged among (side, precision): float32 or a half, unless float64 alone was asked for."""
    return next((dtype for _, dtype in keys if dtype != "float64"), "float64")


def recorded_identity(
    identity: Mapping[str, Mapping[str, Any]], side: str, stage: str, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """What a recording is known by: settings that change its numbers are in it where they do.

    Args:
        identity: Of both sides: case, options, device and interpreter.
        side: Of the recording.
        stage: Likewise.
        asked: `precision`, `accuracy_compatible` and `ranks`, as `RunSettings` has them and `summary.json` repeats
            them.
    """
    found: dict[str, Any] = dict(identity[side])
    if is_ranked(stage, asked.get("ranks", 1)):
        found["ranks"] = asked["ranks"]
    if not STAGE_BY_NAME[stage].needs_model:
        return found
    if asked.get("accuracy_compatible") and side == "paddle":
        found["accuracy_compatible"] = True
    if asked.get("precision") in HALVES:
        found["rounded_to"] = asked["precision"]
    return found
