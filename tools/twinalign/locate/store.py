"""Tensors on their way from one process to the other, one after the other in a file."""

from __future__ import annotations

import collections
import functools
import io
import mmap
from pathlib import Path

import numpy as np

_ALIGNMENT = 64
_IN_USE = 2
"""So many of the arrays read last, one against the other, stay in memory."""


class TensorStore:
    """Arrays by number in one file: one process adds, the other reads.

    The file is written again from its beginning after `restart`. What is in memory already takes no new memory, and
    the file is never larger than the larger of the two sets.
    """

    def __init__(self, path: Path) -> None:
        """Use the file `path`, made by the first `add`."""
        self.path = path
        self.bytes_written = 0
        self._end = 0
        self._map: mmap.mmap | None = None
        self._read: collections.deque[tuple[int, int]] = collections.deque()

    def add(self, array: np.ndarray) -> int:
        """Write an array; returns its number."""
        number = self._end
        self._writer.seek(number)
        array = np.ascontiguousarray(array).reshape(array.shape)
        # What np.lib.format.write_array does, which copies wherever a file may be read as well.
        np.lib.format.write_array_header_1_0(self._writer, np.lib.format.header_data_from_array_1_0(array))
        self._writer.write(array.reshape(-1).view(np.uint8).data)
        self._writer.flush()
        self._end = -(-self._writer.tell() // _ALIGNMENT) * _ALIGNMENT
        self.bytes_written += array.nbytes
        return number

    def restart(self) -> None:
        """Let what is added from now on take the place of what was added before."""
        self._end = 0

    def read(self, number: int) -> np.ndarray:
        """The array of a number, in the memory of the file: to be copied by whoever keeps it beyond a `restart`."""
        with self.path.open("rb") as file:
            file.seek(number)
            np.lib.format.read_magic(file)
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            start = file.tell()
        count = int(np.prod(shape))
        end = start + count * dtype.itemsize
        mapped = self._mapped(end)
        self._read.append((number // mmap.PAGESIZE * mmap.PAGESIZE, end))
        if len(self._read) > _IN_USE and hasattr(mmap, "MADV_DONTNEED"):
            first, last = self._read.popleft()
            mapped.madvise(mmap.MADV_DONTNEED, first, last - first)  # whoever looks again gets them from the file again
        flat = np.frombuffer(mapped, dtype, count, start)
        return flat.reshape(shape, order="F" if fortran else "C")

    @functools.cached_property
    def _writer(self) -> io.BufferedRandom:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.open("w+b")

    def _mapped(self, end: int) -> mmap.mmap:
        """The file in memory, mapped anew when it has grown."""
        if self._map is None or len(self._map) < end:
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._map
