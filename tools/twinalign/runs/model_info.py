"""`twinalign info`: what both models hold and compute, layer by layer."""

import dataclasses
from collections.abc import Callable
from typing import Any

from twinalign.errors import ExitCode
from twinalign.notebook import Shown
from twinalign.recorder.model_size import model_size
from twinalign.recorder.recorder import Recorder
from twinalign.recorder.run_settings import RunSettings
from twinalign.sides import SIDES

COUNTED = ("parameters", "buffers", "flops")


@dataclasses.dataclass
class ModelInfo(Shown):
    """Both models, layer by layer.

    `layers` has for each layer its path on either side (None: the other side has no such path), its class and counts
    there, and the names of the counts that differ.
    """

    kind = "info"

    case: str
    layers: list[dict[str, Any]]
    inputs: dict[str, list[int]]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.ALIGNED

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def info(settings: RunSettings, progress: Callable[[str, str], None] = lambda side, text: None) -> ModelInfo:
    """Build both models, run each once, and put layers of one path, or of a pair in `rename`, side by side.

    Raises:
        InputError: a mistake in the settings or the case.
        SideCrashError: the case's own code raised.
    """
    recorder = Recorder(settings, progress)
    with recorder.started() as processes:
        sizes = {side: processes[side].call(model_size) for side in SIDES}
    renamed = recorder.description["rename"].get(recorder.description["parts"]["forward"], {})
    reference, port = (sizes[side]["layers"] for side in SIDES)
    partner = {path: _renamed(path, renamed) for path in reference}
    rows = [_row(path, reference[path], partner[path], port.get(partner[path])) for path in reference]
    left = [path for path in port if path not in set(partner.values())]
    rows += [_row(None, None, path, port[path]) for path in left]
    return ModelInfo(recorder.description["name"], rows, sizes["ref"]["inputs"])


def _renamed(path: str, pairs: dict[str, str]) -> str:
    for old, new in pairs.items():
        if path == old or path.startswith(f"{old}."):
            return new + path[len(old) :]
    return path


def _row(
    path: str | None, first: dict[str, Any] | None, other: str | None, second: dict[str, Any] | None
) -> dict[str, Any]:
    differ = [name for name in COUNTED if first and second and first[name] != second[name]]
    return {
        "ref": None if first is None else {"layer": path, **first},
        "paddle": None if second is None else {"layer": other, **second},
        "differ": differ,
    }
