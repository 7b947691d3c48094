"""A recording: what one side computed in one stage, as named arrays, with metadata.

On disk it is the file that reviewers know, reprod_log's `.npy` dictionary, with the metadata in a `.json` beside it.
A recorder process has only numpy and its framework, so this module imports nothing else.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.files.reader import read_arrays
from twinalign.files.writer import fast_zipfile, replacing, write_reprod_log

SAMPLE_SIZE = 4096
"""Elements kept of a tensor that is recorded by sample."""

PROJECTION_COUNT = 8
_PROJECTION_WIDTH = 1024
_GOLDEN_RATIO = (5**0.5 - 1) / 2
PROJECTIONS_SUFFIX = " (projections)"
PLANNED_STEPS = "planned_steps"
"""Key of a training's metadata: how many steps it was made to take, other than the case says."""
ELSEWHERE = "elsewhere"
"""Key of the metric's metadata: what is measured on other values, name → number, of each variation."""


@dataclasses.dataclass
class Recording:
    """Ordered name -> array, plus metadata.

    `metadata["sampled"]` maps the names recorded by sample to `{"shape": [...]}` of the whole tensor.
    """

    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def add(self, name: str, array: np.ndarray) -> None:
        """Add a copy of `array`; raises ValueError if the name is taken."""
        if name in self.arrays:
            raise ValueError(f"{name!r} is recorded twice")
        self.arrays[name] = np.array(array)

    def add_sampled(self, name: str, array: np.ndarray) -> None:
        """Add a large tensor as a sample of its elements and a few random projections of all of them.

        A single wrong element changes every projection, so nothing is missed, while a step with 200 million numbers
        takes megabytes instead of gigabytes. Tensors of at most `SAMPLE_SIZE` elements are added whole.
        """
        if array.size <= SAMPLE_SIZE:
            self.add(name, array)
            return
        self.add(name, sample(array))
        self.add(name + PROJECTIONS_SUFFIX, random_projections(array))
        self.metadata.setdefault("sampled", {})[name] = {"shape": list(array.shape)}

    def save(self, path: Path) -> None:
        """Write the arrays to `path` (`.npy`) and the metadata beside it, each complete or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata_path(path).unlink(missing_ok=True)  # a recording without metadata counts as unfinished
        write_reprod_log(path, self.arrays)
        write_json(metadata_path(path), self.metadata)

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read the arrays safely, and the metadata if there are any; raises InputError for a broken file."""
        return cls(dict(read_arrays(path)), read_metadata(path))


def metadata_path(path: Path) -> Path:
    """Path of the metadata of the recording at `path`."""
    return path.with_suffix(".json")


def read_metadata(path: Path) -> dict[str, Any]:
    """Metadata of the recording at `path`, empty if missing or unreadable."""
    try:
        found = json.loads(metadata_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, complete or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write `text`, complete or not at all."""
    with replacing(path) as stream:
        stream.write(text.encode())


def save_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an uncompressed `.npz`, complete or not at all."""
    with replacing(path) as stream, fast_zipfile():
        np.savez(stream, **arrays)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)  # a model has many tensors and few sizes
def sample_positions(size: int) -> np.ndarray:
    """Flat positions (int64, ascending, read-only) that represent a tensor of `size` elements, first and last included.

    Multiples of the golden ratio spread evenly at every scale, and are reproducible without a random generator.
    """
    if size <= SAMPLE_SIZE:
        positions = np.arange(size)
    else:
        spread = np.floor((np.arange(SAMPLE_SIZE - 2) * _GOLDEN_RATIO % 1.0) * size).astype(np.int64)
        positions = np.sort(np.concatenate([[0], spread, [size - 1]]))
        # As numpy.unique, which imports numpy's masked arrays to see that these are none.
        positions = positions[np.concatenate([[True], positions[1:] != positions[:-1]])]
    positions.flags.writeable = False
    return positions


def sample(array: np.ndarray) -> np.ndarray:
    """The elements at `sample_positions`, one axis; a transposed array is not copied for it."""
    positions = sample_positions(array.size)
    return array.reshape(-1)[positions] if array.flags.c_contiguous else array[np.unravel_index(positions, array.shape)]


def in_order(array: np.ndarray, scratch: Callable[[int], np.ndarray] | None = None) -> np.ndarray:
    """The array itself if it is contiguous, else a contiguous copy, in memory that `scratch(size)` lends if given.

    A transposed matrix is copied a few cache lines of columns at a time, nine times as fast as numpy, which goes along
    whole rows: of a matrix with thousands of columns each element then comes from memory anew.
    """
    if array.ndim != 2 or array.flags.c_contiguous or not array.T.flags.c_contiguous:
        return np.ascontiguousarray(array)
    memory = np.empty(array.nbytes, np.uint8) if scratch is None else scratch(array.nbytes)
    found = memory.view(array.dtype).reshape(array.shape)
    columns = max(1, 256 // array.dtype.itemsize)
    for start in range(0, array.shape[1], columns):
        found[:, start : start + columns] = array[:, start : start + columns]
    return found


def random_projections(array: np.ndarray) -> np.ndarray:
    """`PROJECTION_COUNT` bilinear random projections of the whole tensor, float64, scaled to the elements' RMS.

    The tensor is laid out in rows of 1024; projection j is `a_j^T X r_j / sqrt(size)` with fixed normal vectors.
    Complex numbers are taken as alternating real and imaginary parts.
    """
    if array.dtype.kind == "c":
        array = real_view(array)
    size = array.size
    rows = -(-size // _PROJECTION_WIDTH)
    right = _normal("columns", (_PROJECTION_WIDTH, PROJECTION_COUNT))
    left = _normal("rows", (rows, PROJECTION_COUNT))
    flat = in_order(array).reshape(-1)
    total = np.zeros(PROJECTION_COUNT)
    for start in range(0, rows, 256):
        block = flat[start * _PROJECTION_WIDTH : (start + 256) * _PROJECTION_WIDTH].astype(np.float64, copy=False)
        if block.size % _PROJECTION_WIDTH:
            block = np.pad(block, (0, -block.size % _PROJECTION_WIDTH))
        projected = block.reshape(-1, _PROJECTION_WIDTH) @ right
        total += np.einsum("rj,rj->j", projected, left[start : start + len(projected)])
    return total / np.sqrt(size)


def real_view(array: np.ndarray) -> np.ndarray:
    """Complex numbers as alternating real and imaginary parts along the last axis."""
    return np.ascontiguousarray(array).view(array.real.dtype)


@functools.lru_cache(maxsize=32)  # the layers of a model have few shapes, and drawing takes longer than projecting
def _normal(purpose: str, shape: tuple[int, int]) -> np.ndarray:
    # RandomState's streams are frozen by numpy's compatibility policy (NEP 19); Generator's are not.
    found = np.random.RandomState(zlib.crc32(purpose.encode())).randn(*shape)
    found.setflags(write=False)
    return found


def hash_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in order."""
    import hashlib  # loads OpenSSL, which reading needs nothing of

    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
