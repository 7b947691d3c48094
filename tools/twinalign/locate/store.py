"""Tensors on their way from one process to the other: a file each, gone once they have been used."""

from __future__ import annotations

from pathlib import Path

import numpy as np


class TensorStore:
    """Arrays by number in a folder."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, made where it is missing."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._next = 0
        self.bytes_written = 0

    def add(self, array: np.ndarray) -> int:
        """Write an array; returns its number."""
        number = self._next
        self._next += 1
        with self._path(number).open("wb") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
        self.bytes_written += array.nbytes
        return number

    def read(self, number: int) -> np.ndarray:
        """The array of a number, mapped into memory: it stays there when the file is dropped."""
        path = self._path(number)
        with path.open("rb") as file:
            np.lib.format.read_magic(file)
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            start = file.tell()
        if fortran or 0 in shape:
            return np.load(path, allow_pickle=False)
        return np.memmap(path, dtype, "r", start, shape).view(np.ndarray)

    def drop(self, number: int) -> None:
        """Forget an array; one that is gone already is none to worry about."""
        self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.npy"
