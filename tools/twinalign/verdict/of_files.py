"""Comparison of files and of directories of files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files import read_arrays
from twinalign.recording import read_metadata, sample_positions
from twinalign.verdict.comparison import compare_arrays
from twinalign.verdict.draws import draws_of
from twinalign.verdict.judgement import measures_rounding
from twinalign.verdict.partners import partners_beside
from twinalign.verdict.results import Comparison, Described

_SUFFIXES = (".npy", ".npz", ".safetensors", ".pth", ".pt", ".pdparams", ".pdopt")
_SIDE_WORDS = ("reference", "reproduced", "torch", "paddle", "ref")


def compare_files(
    reference: str | os.PathLike[str],
    reproduced: str | os.PathLike[str],
    *,
    reference64: str | os.PathLike[str] | None = None,
    reproduced64: str | os.PathLike[str] | None = None,
    reference_repeat: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Comparison:
    """Read and compare two files, or two directories of files (one a rank, say); options as of `compare_arrays`.

    In directories, files correspond by name, where a word for the side (`ref`, `paddle`, ...) does not count; their
    tensors are named `FILE:TENSOR`. Where neither float64 run is named and tolerances are not given, those that lie
    beside both in a folder `float64`, as `twinalign run` writes them, are taken, and a note says so.

    Raises:
        InputError: a file that is missing or broken, a file against a directory, directories without files.
    """
    if os.path.isdir(reference) != os.path.isdir(reproduced):
        raise InputError(
            f"{reference} and {reproduced}: one is a directory and one is not; give two files or two folders"
        )
    first, second = _read(Path(reference)), _read(Path(reproduced))
    given = {"reference64": reference64, "reproduced64": reproduced64, "reference_repeat": reference_repeat}
    partners = {name: _read(Path(path)) for name, path in given.items() if path is not None}
    notes = _unused(first, partners)
    if reference64 is None and reproduced64 is None and options.get("rtol") is None and options.get("atol") is None:
        found, note = partners_beside(Path(reference), Path(reproduced))
        partners.update((name, _read(path)) for name, path in found.items())
        notes += [note] if note else []
    known, said = _metadata_beside(Path(reference), Path(reproduced))
    try:
        comparison = compare_arrays(first, second, **partners, **(known | options))  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{reference} and {reproduced}: {error}") from error
    comparison.notes[:0] = [*notes, *said]
    return comparison


def _unused(first: Mapping[str, np.ndarray], partners: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """What to say of partners that measure nothing, which would else go unnoticed."""
    options = {"reference64": "--ref64", "reproduced64": "--paddle64", "reference_repeat": "--ref-repeat"}
    notes = []
    for name, arrays in partners.items():
        if name == "reproduced64" and "reference64" not in partners:
            notes.append("--paddle64 was not used: without --ref64 there is no float64 run to hold it against")
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
        raise InputError(f"{path}: no file in it ends in one of {', '.join(_SUFFIXES)}")
    found: dict[str, np.ndarray] = {}
    owners: dict[str, Path] = {}
    for file in files:
        label = _without_side(file)
        if label in owners:
            raise InputError(
                f"{file}: {owners[label].name} has the same name but for the side; give each side a folder of its own"
            )
        owners[label] = file
        found.update({f"{label}:{name}": array for name, array in read_arrays(file).items()})
    return found


def _without_side(file: Path) -> str:
    parts = file.stem.replace("-", "_").split("_")
    kept = [part for part in parts if part.lower() not in _SIDE_WORDS]
    return "_".join(kept) or file.stem


def _metadata_beside(path: Path, reproduced: Path) -> tuple[dict[str, Any], list[str]]:
    """What the metadata beside the recordings says of them, as options of `compare_arrays`, and what is to be said of
    it; nothing of what is missing or makes no sense."""
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
