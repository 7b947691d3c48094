"""Recordings of an attached trainer: a folder with a file per recorded step, and one line per step of its numbers.

`attached.json` says who recorded; `initial.npz` is the state dict at the start; `steps.jsonl` has the numbers of every
step; `step000000.npz` the tensors of a step, in the order of execution, `step000000.json` its facts. `rankN/` hold the
recordings of several processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.reader import read_arrays
from twinalign.files.recordings import metadata_path, read_metadata
from twinalign.files.writer import fast_zipfile, replacing

if TYPE_CHECKING:
    import zipfile

FORMAT = "twinalign attached 1"
ABOUT, INITIAL, NUMBERS = "attached.json", "initial.npz", "steps.jsonl"
_EVERY_STEP = 10_000
"""Steps of which each has its line; up to ten times as many, each tenth has one, and so on, which bounds the file."""


def is_attached(path: Path) -> bool:
    """Whether a folder holds recordings of an attached trainer."""
    return (path / ABOUT).is_file() or (path / "rank0" / ABOUT).is_file()


def step_path(folder: Path, step: int) -> Path:
    """The file of a step's tensors."""
    return folder / f"step{step:06d}.npz"


def has_line(step: int) -> bool:
    """Whether a step's numbers are kept."""
    apart = 1
    while step >= _EVERY_STEP * apart:
        apart *= 10
    return step % apart == 0


class ArrayStream:
    """Writes arrays into an `.npz` one at a time, so that no more than one is in memory."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.names: set[str] = set()

    def add(self, name: str, array: np.ndarray) -> None:
        """Write an array; one that is there already under this name stays."""
        if name in self.names:
            return
        self.names.add(name)
        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
            member.write(header.getvalue())
            member.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@contextlib.contextmanager
def array_stream(path: Path) -> Iterator[ArrayStream]:
    """An `ArrayStream` whose file appears when the block ends; raises InputError where it cannot be written."""
    import zipfile  # slow, and comparing two plain files needs none

    with replacing(path) as file, fast_zipfile(), zipfile.ZipFile(file, "w") as archive:
        yield ArrayStream(archive)


@dataclasses.dataclass
class AttachedRecording:
    """One trainer's recording."""

    folder: Path
    about: dict[str, Any]

    @classmethod
    def load(cls, folder: Path) -> AttachedRecording:
        """Raises InputError if the folder holds none."""
        about = read_metadata(folder / ABOUT)
        if about.get("format") != FORMAT:
            raise InputError(f"{folder / ABOUT}: no recording of an attached trainer; record it with twinalign.attach")
        return cls(folder, about)

    @functools.cached_property
    def numbers(self) -> list[dict[str, Any]]:
        """A dictionary per step; the last line of a killed run may be incomplete and is left out."""
        found = []
        with contextlib.suppress(OSError):
            for line in (self.folder / NUMBERS).read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return [entry for entry in found if isinstance(entry, dict)]

    @functools.cached_property
    def steps(self) -> list[int]:
        """Steps whose tensors were recorded."""
        names = (path.stem.removeprefix("step") for path in sorted(self.folder.glob("step*.npz")))
        return [int(name) for name in names if name.isdigit()]

    def arrays(self, step: int) -> dict[str, np.ndarray]:
        """The tensors of a step, in the order of execution."""
        return dict(read_arrays(step_path(self.folder, step)))

    def facts(self, step: int) -> dict[str, Any]:
        """What was recorded of a step besides tensors: events, settings of the optimizer, dtypes."""
        return read_metadata(metadata_path(step_path(self.folder, step)))

    def initial(self, model: str = "") -> dict[str, np.ndarray]:
        """The state dict at the start, of the model that was attached under this name."""
        prefix = f"{model}:" if model else ""
        arrays = read_arrays(self.folder / INITIAL)
        return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}

    def inputs(self, step: int, call: int) -> dict[str, np.ndarray]:
        """The tensors that a call of a model was given, by name."""
        prefix = f"call{call}.input."
        arrays = self.arrays(step)
        return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def rename_rules(recording: AttachedRecording, model: str) -> dict[str, str]:
    """The rules `{reference name: paddle name}` that a trainer was attached with."""
    return dict(recording.about.get("rename", {}).get(model, {}))


def ranks_of(folder: Path) -> list[Path]:
    """The folders of a recording's processes, by rank; the folder itself if there is one alone."""
    found = [path for path in folder.glob("rank*") if path.name[4:].isdigit() and (path / ABOUT).is_file()]
    return sorted(found, key=lambda path: int(path.name[4:])) or [folder]
