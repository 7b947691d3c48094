"""Gives back the memory of files that are mapped and read once: they may be larger than the machine's memory."""

import mmap
from typing import Any

import numpy as np

STRETCH = 1 << 24
"""Bytes after which what was read is given back."""


def release(*read: np.ndarray | memoryview) -> None:
    """Take the bytes of mapped files, contiguous each, out of this process's memory; does nothing for others.

    What is read again comes from the file again.
    """
    for one in read:
        base: Any = one
        while isinstance(base, np.ndarray | memoryview):
            base = base.obj if isinstance(base, memoryview) else base.base
        # A map that can be written to may hold what its file does not.
        if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") and memoryview(base).readonly and one.nbytes:
            begin = _address(one) - _address(memoryview(base))
            page = begin - begin % mmap.PAGESIZE
            base.madvise(mmap.MADV_DONTNEED, page, begin + one.nbytes - page)


def _address(data: np.ndarray | memoryview) -> int:
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    return int(array.__array_interface__["data"][0])
