"""Float64 runs that lie beside two recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twinalign.recording import read_metadata

FOLDER = "float64"
"""Folder in which `twinalign run` keeps the float64 runs, under the names of the others."""

_SAME_RUN = ("identity", "weights_sha256", "inputs_sha256", "code_sha256")
"""Entries of the metadata that a float64 run shares with the run that it measures."""


def partners_beside(reference: Path, reproduced: Path) -> tuple[dict[str, Path], str | None]:
    """The float64 runs beside both of two files (or inside both of two directories), and a note for the reader.

    A run of other weights, inputs or code would pass off its difference as rounding, so that two whose metadata
    disagree are left aside; files without metadata are taken by their name.

    Returns:
        Paths by the names of `compare_arrays`' arguments, empty unless there is one for each side; the note, or None
        where there is nothing to say.
    """
    found = {"reference64": _partner(reference), "reproduced64": _partner(reproduced)}
    if not all(path.is_dir() if side.is_dir() else path.is_file() for side, path in _pairs(reference, reproduced)):
        return {}, None
    shown = " and ".join(str(path) for path in found.values())
    for side, path in _pairs(reference, reproduced):
        try:
            entry = _other_run(read_metadata(side), read_metadata(path))
        except RecursionError:
            return {}, f"{shown} were not used: the metadata of {path.name} are nested too deeply"
        if entry is not None:
            return {}, f"{shown} were not used: the metadata of {path.name} names another {entry} than {side}"
    return found, f"rounding was measured with {shown}, found beside the two"


def _pairs(reference: Path, reproduced: Path) -> list[tuple[Path, Path]]:
    return [(side, _partner(side)) for side in (reference, reproduced)]


def _partner(path: Path) -> Path:
    return path / FOLDER if path.is_dir() else path.parent / FOLDER / path.name


def _other_run(metadata: dict[str, Any], partner: dict[str, Any]) -> str | None:
    for entry in _SAME_RUN:
        if entry in metadata and entry in partner and not _agree(metadata[entry], partner[entry]):
            return entry
    return None


def _agree(first: Any, second: Any) -> bool:
    # A float64 run may be shorter and have loaded fewer files: what only one of them has says nothing.
    if isinstance(first, dict) and isinstance(second, dict):
        return all(first[key] == second[key] for key in first.keys() & second.keys())
    return bool(first == second)
