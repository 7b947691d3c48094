"""numpy's own files: `.npy` and `.npz`."""

import ast
import math
import os
import struct
from typing import Any

import numpy as np

from plain_pickles.dtypes import array_over, checked_numeric, checked_shape, numpy_dtype
from plain_pickles.errors import BrokenFileError, RefusedError
from plain_pickles.machine import MOST_STEPS
from plain_pickles.reading import read_pickle

MAGIC = b"\x93NUMPY"
_MAXIMUM_HEADER = 10_000  # as numpy.load has it: Python parses the header


def read_npy(buffer: memoryview, most_steps: int = MOST_STEPS) -> Any:
    """The memory-mapped array of a `.npy`, or the tree inside an object array.

    Format: numpy.lib.format's documentation, versions 1.0 to 3.0. `most_steps` limits such a tree (`PickleMachine`).
    """
    if len(buffer) < 12 or bytes(buffer[:6]) != MAGIC:
        raise BrokenFileError("it is cut short: not even a numpy header is there")
    major = buffer[6]
    if major not in (1, 2, 3):
        raise BrokenFileError(f"it is of numpy's format version {major}; 1 to 3 are known")
    layout = struct.Struct("<H" if major == 1 else "<I")
    start = 8 + layout.size
    (length,) = layout.unpack(buffer[8:start])
    if length > _MAXIMUM_HEADER or start + length > len(buffer):
        raise BrokenFileError(f"its numpy header claims {length} bytes")
    dtype, fortran, shape = _parse_header(bytes(buffer[start : start + length]), "latin-1" if major < 3 else "utf-8")
    data = buffer[start + length :]
    if dtype.hasobject:
        if dtype.kind != "O":
            raise RefusedError("it holds structures with objects in them, which are not numbers")
        return read_pickle(data, most_steps)
    size = math.prod(shape) * dtype.itemsize
    if size > len(data):
        raise BrokenFileError(f"it is cut short: shape {shape} and {dtype} need {size} bytes")
    if size < len(data):
        raise RefusedError(f"{len(data) - size} bytes at its end belong to nothing")
    return fields(array_over(data, dtype, shape, fortran))


def _parse_header(header: bytes, encoding: str) -> tuple[np.dtype, bool, tuple[int, ...]]:
    try:
        parsed = ast.literal_eval(header.decode(encoding).strip())
        if not isinstance(parsed, dict) or set(parsed) != {"descr", "fortran_order", "shape"}:
            raise ValueError("other keys")
        shape = parsed["shape"]
        checked_shape(shape)
        dtype = np.lib.format.descr_to_dtype(parsed["descr"])
        return dtype, bool(parsed["fortran_order"]), shape
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise BrokenFileError("its numpy header is malformed") from error


def fields(array: np.ndarray) -> Any:
    """The array; name -> array for an array of structures; the text for a single text."""
    if array.dtype.names is None:
        if array.dtype.kind == "U" and array.shape == ():
            return str(array)
        if array.dtype.kind == "V" and array.dtype.itemsize == 2:
            # np.save writes ml_dtypes' bfloat16 as two opaque bytes; nothing else of this field is stored so.
            return array.view(numpy_dtype("bfloat16"))
        checked_numeric(array.dtype)
        return array
    return {name: fields(array[name]) for name in array.dtype.names}


def read_npz(archive: Any) -> dict[str, Any]:
    """name -> array of a `.npz`; uncompressed members are mapped, compressed ones are unpacked into memory."""
    tree: dict[str, Any] = {}
    for member in archive.members:
        name = member[:-4] if member.endswith(".npy") else member
        if name in tree:
            raise BrokenFileError(f"it holds {name[:80]!r} twice")
        tree[name] = read_npy(archive.read(member))
    return tree


def memory_limit() -> int:
    """The bytes that unpacking may use: three quarters of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
