"""What may mend a case whose weights cannot be converted: edits of its `rename`."""

import json
from collections.abc import Callable
from pathlib import Path

from twinalign.edits.proposals import Proposals
from twinalign.edits.source import Edit
from twinalign.errors import SideCrashError
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.replay.construction_places import case_places
from twinalign.sides import SIDES


def edits_of_rename(
    settings: RunSettings, weights: Path, progress: Callable[[str, str], None], kept: KeptProcesses
) -> list[Edit]:
    """Names in the case's `rename` that do not exist, each made the closest that does; then no `rename`.

    Args:
        weights: the folder in which the run that failed has left the layouts of both models.
    """
    names = [_names([*weights.glob(f"*_{side}_layout.json")]) for side in SIDES]
    if not all(names):  # it is not the conversion that failed
        return []
    try:
        with Recorder(settings, progress, kept).started(["paddle"]) as processes:
            places = processes["paddle"].call(case_places)
    except SideCrashError:
        return []
    return Proposals({"layers": {}, "parameters": {}, **places}, {}, settings.sources).of_names(names)


def _names(layouts: list[Path]) -> set[str]:
    """Names of all tensors, and of the layers that hold them."""
    keys = [entry["key"] for layout in layouts for entry in json.loads(layout.read_text(encoding="utf-8"))]
    return {".".join(key.split(".")[:count]) for key in keys for count in range(1, key.count(".") + 2)}
