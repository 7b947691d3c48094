"""A file through which one process hands tensors to another."""

import collections
import functools
import io
import mmap
from pathlib import Path

import numpy as np

from twinalign.errors import writing

_ALIGNMENT = 64
_IN_USE = 2
"""This many of the arrays read last stay in memory: two, to be compared with each other."""


class TensorStore:
    """Arrays by number in one file, which the first `add` creates: one process adds, the other reads.

    After `restart` the file is overwritten from its beginning, so it is never larger than the larger of the two sets.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes_written = 0
        self._end = 0
        self._map: mmap.mmap | None = None
        self._read: collections.deque[tuple[int, int]] = collections.deque()

    def add(self, array: np.ndarray) -> int:
        """Write an array; returns its number."""
        number = self._end
        array = np.ascontiguousarray(array).reshape(array.shape)
        with writing(self.path):
            self._writer.seek(number)
            # Like np.lib.format.write_array, which would copy because the file may be read as well.
            np.lib.format.write_array_header_1_0(self._writer, np.lib.format.header_data_from_array_1_0(array))
            self._writer.write(array.reshape(-1).view(np.uint8).data)
            self._writer.flush()
        self._end = -(-self._writer.tell() // _ALIGNMENT) * _ALIGNMENT
        self.bytes_written += array.nbytes
        return number

    def restart(self) -> None:
        """Overwrite from now on what was added before."""
        self._end = 0

    def discard(self) -> None:
        """Free the disk space: nothing is read any more."""
        self._writer.close()
        self.path.unlink(missing_ok=True)

    def read(self, number: int) -> np.ndarray:
        """The array of a number, in the memory of the mapped file: copy it to keep it beyond a `restart`."""
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
            mapped.madvise(mmap.MADV_DONTNEED, first, last - first)  # a later access reads them from the file again
        flat = np.frombuffer(mapped, dtype, count, start)
        return flat.reshape(shape, order="F" if fortran else "C")

    @functools.cached_property
    def _writer(self) -> io.BufferedRandom:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.open("w+b")

    def _mapped(self, end: int) -> mmap.mmap:
        if self._map is None or len(self._map) < end:
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._map
