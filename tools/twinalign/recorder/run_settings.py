"""The settings of a run."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from twinalign.errors import InputError
from twinalign.files.text import fault_on_any_system
from twinalign.sides import INITIAL

DEFAULT_MARGIN = 0.15
"""In points: what the alignment guide of the field allows a reproduction's accuracy to differ by."""
_LONGEST_NAME = 200
"""Bytes of a case's name: file systems take 255, and the files that are called by it have endings."""


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """The settings of a run; the fields are the options of `twinalign run`."""

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
    explain_seconds: float = 60.0
    """Seconds of processor time in which the causes of all faults are looked for."""
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
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Real path of a source file -> the text that both sides import in its place; the file stays as it is."""


def experiments(settings: RunSettings) -> list[str]:
    """The options that require more of the train stage than one training per side."""
    asked = {"--seeds": settings.seeds > 1, "--switch-at": settings.switch_at > 0, "--swap": bool(settings.swaps)}
    return [option for option, wanted in asked.items() if wanted]


def require_file_names(case: str, parts: Iterable[str]) -> None:
    """Raise InputError if the name of a case's part cannot be a file name, here or in a bundle."""
    for part in parts:
        long = len(part.encode("utf-8", "replace")) > _LONGEST_NAME
        if long or "/" in part or fault_on_any_system(f"result/weights/{part}_ledger.json") is not None:
            raise InputError(
                f"{case}: {part[:80]!r}{'…' * (len(part) > 80)} cannot be a file name, and weights are kept in files "
                f"named after the case: give it a `name` without / \\ : and invisible characters, of at most "
                f"{_LONGEST_NAME} bytes"
            )


def chosen_stages(settings: RunSettings, description: Mapping[str, Any]) -> list[str]:
    """The stages of a case that a run records, `initial` last; raises InputError for one that the case lacks."""
    offered, name = [*description["stages"], INITIAL], description.get("name", "")
    refused = [f"--stages {stage}: case {name} does not define it" for stage in settings.stages if stage not in offered]
    if "train" not in offered:
        wanted = [*experiments(settings), *(["--tensorboard"] if settings.tensorboard else [])]
        refused += [f"{option}: case {name} does not define train" for option in wanted]
    if refused:
        raise InputError(f"{refused[0]}; it has {', '.join(offered)} (see the methods of twinalign.Case)")
    return [stage for stage in offered if not settings.stages or stage in settings.stages]
