"""Files through which one process hands tensors to another."""

import collections
import contextlib
import functools
import io
import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from twinalign.errors import writing
from twinalign.processes.machine import available_memory

_ALIGNMENT = 64
_HEAD = 1024
"""More bytes than the head of an array takes."""
_BEFORE_HEAD = 10
"""Bytes of an array in front of its description: six of numpy's, its version, and the length of the description."""
_IN_USE = 2
"""This many of the arrays read last stay in memory: two, to be compared with each other."""
_SHARE_OF_MEMORY = 4
"""A file in memory takes at most one part in so many of what is available."""
_ON_DISK = 1 << 48
"""Numbers from here on are places on disk, those below are places in memory."""
_SUFFIX = ".memory"


class TensorStore:
    """Arrays by number in files, which the first `add` creates: one process adds, the other reads.

    As long as there is plenty of memory it holds them: a file system takes four times as long to find room for new
    pages. After `restart` the files are overwritten from their beginning, so they are never larger than the larger of
    the two sets.
    """

    def __init__(self, path: Path, in_memory: int | None = None) -> None:
        """`in_memory`: at most so many bytes are held by memory; None: a share of what is available."""
        self._limit = in_memory
        self._in_memory = _File(path.with_name(path.name + _SUFFIX), _opened_in_memory)
        self._on_disk = _File(path, lambda path: path.open("w+b"))
        self.bytes_written = 0

    def add(self, array: np.ndarray) -> int:
        """Write an array; returns its number."""
        self.bytes_written += array.nbytes
        if self._in_memory.end + array.nbytes + _HEAD <= self._most_in_memory:
            return self._in_memory.add(array)
        return self._on_disk.add(array) + _ON_DISK

    def restart(self) -> None:
        """Overwrite from now on what was added before."""
        self._in_memory.end = self._on_disk.end = 0

    def discard(self) -> None:
        """Free the space: nothing is read any more."""
        self._in_memory.discard()
        self._on_disk.discard()

    def read(self, number: int) -> np.ndarray:
        """The array of a number, in the memory of the mapped file: copy it to keep it beyond a `restart`."""
        return self._in_memory.read(number) if number < _ON_DISK else self._on_disk.read(number - _ON_DISK)

    def shape(self, number: int) -> tuple[int, ...]:
        """The shape of the array of a number."""
        return self._in_memory.shape(number) if number < _ON_DISK else self._on_disk.shape(number - _ON_DISK)

    @functools.cached_property
    def _most_in_memory(self) -> int:
        if self._limit is None:
            self._limit = available_memory() // _SHARE_OF_MEMORY if hasattr(os, "memfd_create") else 0
        return self._limit


def remove_stores(folder: Path) -> None:
    """Remove a folder with stores, and free their memory, which a process that keeps one open would hold."""
    for file in folder.rglob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            os.truncate(file, 0)
    shutil.rmtree(folder, ignore_errors=True)


def _opened_in_memory(path: Path) -> io.BufferedRandom:
    """A file in memory alone, which is gone with the last process that has it open; `path` leads others to it."""
    opened = os.memfd_create(path.name)
    path.unlink(missing_ok=True)
    path.symlink_to(f"/proc/{os.getpid()}/fd/{opened}")
    return os.fdopen(opened, "w+b")


class _File:
    """Arrays by their places in one file."""

    def __init__(self, path: Path, make: Callable[[Path], io.BufferedRandom]) -> None:
        self._path, self._make = path, make
        self.end = 0
        self._map: mmap.mmap | None = None
        self._read: collections.deque[tuple[int, int]] = collections.deque()

    def add(self, array: np.ndarray) -> int:
        place = self.end
        array = np.ascontiguousarray(array).reshape(array.shape)
        with writing(self._path):
            self._writer.seek(place)
            # Like np.lib.format.write_array, which would copy because the file may be read as well.
            np.lib.format.write_array_header_1_0(self._writer, np.lib.format.header_data_from_array_1_0(array))
            self._writer.write(array.reshape(-1).view(np.uint8).data)
            self._writer.flush()
        self.end = -(-self._writer.tell() // _ALIGNMENT) * _ALIGNMENT
        return place

    def discard(self) -> None:
        if "_writer" in vars(self):
            self._writer.close()
            self._path.unlink(missing_ok=True)

    def read(self, place: int) -> np.ndarray:
        shape, fortran, dtype, start, end = self._found(place)
        mapped = self._mapped(end)
        self._read.append((place // mmap.PAGESIZE * mmap.PAGESIZE, end))
        if len(self._read) > _IN_USE and hasattr(mmap, "MADV_DONTNEED"):
            first, last = self._read.popleft()
            mapped.madvise(mmap.MADV_DONTNEED, first, last - first)  # a later access reads them from the file again
        flat = np.frombuffer(mapped, dtype, int(np.prod(shape)), start)
        return flat.reshape(shape, order="F" if fortran else "C")

    def shape(self, place: int) -> tuple[int, ...]:
        return self._found(place)[0]

    def _found(self, place: int) -> tuple[tuple[int, ...], bool, np.dtype, int, int]:
        """Of an array its shape, whether it is in Fortran's order, its dtype, where its values begin and end."""
        mapped = self._mapped(place + _BEFORE_HEAD)
        start = place + _BEFORE_HEAD + int.from_bytes(mapped[place + _BEFORE_HEAD - 2 : place + _BEFORE_HEAD], "little")
        shape, fortran, dtype = _parsed(self._mapped(start)[place:start])
        return shape, fortran, dtype, start, start + int(np.prod(shape)) * dtype.itemsize

    @functools.cached_property
    def _writer(self) -> io.BufferedRandom:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._make(self._path)

    def _mapped(self, end: int) -> mmap.mmap:
        if self._map is None or len(self._map) < end:
            with self._path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._map


@functools.lru_cache(maxsize=1024)  # the activations of a model have few shapes
def _parsed(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    file = io.BytesIO(head)
    np.lib.format.read_magic(file)
    found: tuple[tuple[int, ...], bool, np.dtype] = np.lib.format.read_array_header_1_0(file)
    return found
