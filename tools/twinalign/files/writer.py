"""Writer of recordings in the format that reviewers know: reprod_log's `.npy` dictionary. Needs numpy alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def write_reprod_log(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write the bytes that reprod_log 1.0.1's `ReprodLogger.save` would, without importing it (it imports paddle).

    reprod_log saves `np.save(path, {name: array})`, a pickled dictionary in a 0-d object array; numpy appends `.npy`
    where the name lacks it, and so does this. The file appears whole or not at all.

    Raises:
        TypeError: a value is not a numpy array, or a name is not a string.
    """
    for name, array in arrays.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise TypeError(f"{name!r}: a recording maps names to numpy arrays, got {type(array).__name__}")
    target = Path(path)
    if not target.name.endswith(".npy"):
        target = target.with_name(target.name + ".npy")
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as stream:
            np.save(stream, dict(arrays))  # type: ignore[arg-type]
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
