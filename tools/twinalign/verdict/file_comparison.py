"""Two files or folders of files, read and compared, with the help of the metadata that `twinalign run` wrote."""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.curve_names import REPEAT_PREFIX
from twinalign.files.reader import read_arrays
from twinalign.files.recordings import metadata_path, read_metadata, sample_positions
from twinalign.verdict.allowances import Allowance
from twinalign.verdict.array_comparison import compare_arrays
from twinalign.verdict.case_allowances import allowances_for
from twinalign.verdict.excuses import draws_of
from twinalign.verdict.precisions import measures_rounding
from twinalign.verdict.results import Comparison, Described
from twinalign.verdict.structure import require_something, select_names

PathLike = str | os.PathLike[str]

_SUFFIXES = (".npy", ".npz", ".safetensors", ".pth", ".pt", ".pdparams", ".pdopt")
_COMPARED_SIDES = (("ref", "paddle"), ("ref", "ref"), ("paddle", "paddle"))
_SIDE_WORDS = ("reference", "reproduced", "torch", "paddle", "ref")


def compare_bare_files(
    reference: Path,
    reproduced: Path,
    *,
    reference64: PathLike | None = None,
    reproduced64: PathLike | None = None,
    reference_repeat: PathLike | None = None,
    **options: Any,
) -> Comparison:
    """Compare two files or two folders of files by their content; options as in `compare_arrays`.

    Raises:
        InputError: a file is missing or broken, a file is compared with a folder, or a folder has no files.
    """
    if reference.is_dir() != reproduced.is_dir():
        raise InputError(
            f"{reference} and {reproduced}: one is a directory and one is not; give two files or two folders"
        )
    first, second = _read(reference), _read(reproduced)
    given = {"reference64": reference64, "reproduced64": reproduced64, "reference_repeat": reference_repeat}
    partners = {name: _read(Path(path)) for name, path in given.items() if path is not None}
    notes = _unused(first, partners)
    if reference64 is None and reproduced64 is None and options.get("rtol") is None and options.get("atol") is None:
        found, note = float64_beside(reference, reproduced)
        partners.update((name, _read(path)) for name, path in found.items())
        notes += [note] if note else []
    known, said = _metadata_beside(reference, reproduced)
    try:
        comparison = compare_arrays(first, second, **partners, **(known | options))  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{reference} and {reproduced}: {error}") from error
    comparison.notes[:0] = [*notes, *said]
    return comparison


def compare_training_files(
    sides: tuple[Path, Path],
    float64: tuple[PathLike | None, PathLike | None],
    only: tuple[str, ...],
    skip: tuple[str, ...],
    allowances: Iterable[Allowance | str],
) -> Comparison:
    """Compare two recordings of the train stage: curves as trajectories, outcomes by their standard error.

    If neither float64 run is given, those in the folder `float64` are used.

    Raises:
        InputError: a file is missing or broken, or is no recording of a training.
    """
    from twinalign.verdict.training_comparison import compare_training

    notes = []
    if float64 == (None, None):
        found, note = float64_beside(*sides)
        float64 = found.get("reference64"), found.get("reproduced64")
        notes = [note] if note else []
    read = [None if path is None else read_arrays(path) for path in (*sides, *float64)]
    kept = [
        arrays
        and {name: arrays[name] for name in arrays if select_names([name.removeprefix(REPEAT_PREFIX)], only, skip)}
        for arrays in read
    ]
    require_something(kept[0] or {}, kept[1] or {}, (*only, *skip))
    try:
        comparison = compare_training(kept[0] or {}, kept[1] or {}, kept[2], kept[3], allowances=allowances)
    except (IndexError, TypeError, ValueError) as error:
        raise InputError(f"{sides[0]} and {sides[1]}: no curves and outcomes of the train stage ({error})") from error
    comparison.notes[:0] = notes
    return comparison


def recorded_stage(reference: Path, reproduced: Path) -> tuple[str | None, list[str], list[Allowance | str]]:
    """Stage, accepted conventions and allowances that `twinalign run` applies to these two recordings.

    `run` and `compare` must agree about the same files. Two recordings of one side, on two devices say, are judged like
    those of two sides. Files from elsewhere have none of these.
    """
    try:
        first, second, case = (
            read_metadata(path) for path in (reference, reproduced, reference.with_name("case.json"))
        )
    except RecursionError:
        return None, [], []
    stage = second.get("stage")
    sides = first.get("side"), second.get("side")
    if sides not in _COMPARED_SIDES or not isinstance(stage, str) or first.get("stage") != stage:
        return None, [], []
    try:
        description = case.get("description", {})
        accept = description.get("accept", ())
        named = [f"{key}={pattern}" for key, pattern in accept.items()] if isinstance(accept, dict) else list(accept)
        return stage, named, allowances_for(stage, second, description)
    except (AttributeError, KeyError, TypeError, ValueError):  # metadata that twinalign did not write
        return None, [], []


def _unused(first: Mapping[str, np.ndarray], partners: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """Notes on given float64 runs and repeats that measure nothing."""
    options = {"reference64": "--ref64", "reproduced64": "--paddle64", "reference_repeat": "--ref-repeat"}
    notes = []
    for name, arrays in partners.items():
        if name == "reproduced64" and "reference64" not in partners:
            notes.append("--paddle64 was not used: without --ref64 there is no float64 run to compare it with")
        elif not any(_fits(array, arrays.get(key), name == "reference_repeat") for key, array in first.items()):
            kind = "of the same type" if name == "reference_repeat" else "in higher precision"
            notes.append(f"{options[name]} was not used: it has no tensor of the reference's names and shapes {kind}")
    return notes


def _fits(array: np.ndarray, partner: np.ndarray | None, same_type: bool) -> bool:
    if partner is None:
        return False
    if same_type:
        return partner.shape == array.shape and partner.dtype == array.dtype
    return measures_rounding(partner, array)


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_dir():
        return read_arrays(path)
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and not file.name.startswith("."))
    if not files:
        raise InputError(f"{path}: none of its files ends in {', '.join(_SUFFIXES)}")
    found: dict[str, np.ndarray] = {}
    owners: dict[str, Path] = {}
    for file in files:
        label = _without_side(file)
        if label in owners:
            raise InputError(
                f"{file}: {owners[label].name} has the same name except for the side; put each side into its own folder"
            )
        owners[label] = file
        found.update({f"{label}:{name}": array for name, array in read_arrays(file).items()})
    return found


def _without_side(file: Path) -> str:
    parts = file.stem.replace("-", "_").split("_")
    kept = [part for part in parts if part.lower() not in _SIDE_WORDS]
    return "_".join(kept) or file.stem


def _metadata_beside(path: Path, reproduced: Path) -> tuple[dict[str, Any], list[str]]:
    """Options of `compare_arrays` and notes from the recordings' metadata; missing or malformed entries are ignored."""
    try:
        first, second = (read_metadata(file) for file in (path, reproduced))
    except RecursionError:
        return {}, []
    readers: dict[str, Callable[[], Any]] = {
        "described": lambda: {
            name: Described(shape, _index_of(shape))
            for name, entry in first.get("sampled", {}).items()
            if (shape := tuple(int(extent) for extent in entry["shape"])) is not None
        },
        "repeats": lambda: {
            name: [[float(value) for value in values] for values in found]
            for name, found in first.get("repeats", {}).items()
        },
        "drawn": lambda: draws_of(first, second),
    }
    found: dict[str, Any] = {}
    for name, reader in readers.items():
        with contextlib.suppress(ValueError, AttributeError, KeyError, TypeError, OverflowError, RecursionError):
            found[name] = reader()
    changes, notes = found.pop("drawn", ({}, []))
    return found | {"changed_by_draws": changes}, notes


def _index_of(shape: tuple[int, ...]) -> Callable[[int], tuple[int, ...]]:
    positions = sample_positions(int(np.prod(shape, dtype=np.int64)))

    def index(position: int) -> tuple[int, ...]:
        if position >= len(positions):  # metadata of another file
            return (position,)
        return tuple(int(place) for place in np.unravel_index(positions[position], shape))

    return index


FOLDER = "float64"
"""Folder in which `twinalign run` keeps the float64 runs, under the names of the others."""


_SAME_RUN = ("identity", "weights_sha256", "inputs_sha256", "code_sha256")
"""Entries of the metadata that a float64 run shares with the run that it measures."""


def float64_beside(reference: Path, reproduced: Path) -> tuple[dict[str, Path], str | None]:
    """The float64 runs of two files (or directories) in the folder `float64` next to (or inside) them, and a note.

    The difference of a run with other weights, inputs or code would look like rounding, so runs whose metadata disagree
    are not used; files without metadata are matched by name.

    Returns:
        Paths by the names of `compare_arrays`' arguments, empty unless both sides have one; a note or None.
    """
    found = {"reference64": _float64_of(reference), "reproduced64": _float64_of(reproduced)}
    pairs = list(zip((reference, reproduced), found.values(), strict=True))
    if not all(path.is_dir() if side.is_dir() else path.is_file() for side, path in pairs):
        return {}, None
    shown = " and ".join(str(path) for path in found.values())
    for side, path in pairs:
        first, second = read_metadata(side), read_metadata(path)
        if not first and metadata_path(side).exists():
            return {}, f"{shown} were not used: the metadata of {side.name} cannot be read"
        entry = _other_run(first, second)
        if entry is not None:
            return {}, f"{shown} were not used: the metadata of {path.name} has another {entry} than {side}"
    return found, f"rounding was measured with {shown}, found next to the two"


def _float64_of(path: Path) -> Path:
    return path / FOLDER if path.is_dir() else path.parent / FOLDER / path.name


def _other_run(metadata: dict[str, Any], float64: dict[str, Any]) -> str | None:
    both = [entry for entry in _SAME_RUN if entry in metadata and entry in float64]
    return next((entry for entry in both if not _agree(metadata[entry], float64[entry])), None)


def _agree(first: Any, second: Any) -> bool:
    # A float64 run may be shorter and have loaded fewer files: what only one of them has says nothing.
    if isinstance(first, dict) and isinstance(second, dict):
        return all(first[key] == second[key] for key in first.keys() & second.keys())
    return bool(first == second)
