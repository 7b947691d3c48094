"""Comparison of files and of directories of files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files import read_arrays
from twinalign.verdict.comparison import compare_arrays
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
    tensors are named `FILE:TENSOR`.

    Raises:
        InputError: a file that is missing or broken, a file against a directory, directories without files.
    """
    if os.path.isdir(reference) != os.path.isdir(reproduced):
        raise InputError(
            f"{reference} and {reproduced}: one is a directory and one is not; give two files or two folders"
        )
    first, second = _read(Path(reference)), _read(Path(reproduced))
    partners: dict[str, Any] = {
        name: _read(Path(path))
        for name, path in (
            ("reference64", reference64),
            ("reproduced64", reproduced64),
            ("reference_repeat", reference_repeat),
        )
        if path is not None
    }
    described = options.pop("described", None) or _described_beside(Path(reference))
    try:
        return compare_arrays(first, second, described=described, **partners, **options)
    except InputError as error:
        raise InputError(f"{reference} and {reproduced}: {error}") from error


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
            raise InputError(f"{file}: {owners[label].name} has the same name but for the side; keep one a directory")
        owners[label] = file
        found.update({f"{label}:{name}": array for name, array in read_arrays(file).items()})
    return found


def _without_side(file: Path) -> str:
    parts = file.stem.replace("-", "_").split("_")
    kept = [part for part in parts if part.lower() not in _SIDE_WORDS]
    return "_".join(kept) or file.stem


def _described_beside(path: Path) -> Mapping[str, Described]:
    """What the samples in a recording stand for, from the metadata beside it where there is any that makes sense."""
    try:
        metadata = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        sampled = metadata.get("sampled", {})
        shapes = {name: tuple(int(extent) for extent in entry["shape"]) for name, entry in sampled.items()}
        return {name: Described(shape, _index_of(shape)) for name, shape in shapes.items()}
    except (OSError, ValueError, AttributeError, KeyError, TypeError, OverflowError, RecursionError):
        return {}


def _index_of(shape: tuple[int, ...]) -> Callable[[int], tuple[int, ...]]:
    from twinalign.recording import sample_positions

    positions = sample_positions(int(np.prod(shape, dtype=np.int64)))

    def index(position: int) -> tuple[int, ...]:
        if position >= len(positions):  # metadata of another file
            return (position,)
        return tuple(int(place) for place in np.unravel_index(positions[position], shape))

    return index
