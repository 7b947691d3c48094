"""Reading of any supported file: format by content, trees, and flat names."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import stat
from collections.abc import Iterator
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.errors import BrokenFileError, RefusedError

_MAXIMUM_NODES = 1_000_000
_MAXIMUM_LETTERS = 1 << 26
"""Of all names together: one long name stands before that of everything that is nested in it."""
SINGLE_ARRAY_NAME = "array"
"""Name that a file of one bare array gives to it."""


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Arrays of a file by name, nested names joined with dots, in the file's order.

    Formats, known by content and not by suffix: `.npy` (a plain array, named "array", or reprod_log's dictionary),
    `.npz`, `.safetensors`, torch's `.pth`/`.pt` (zip and the format before torch 1.6), paddle's `.pdparams`/`.pdopt`.
    Arrays are read-only, and memory-mapped wherever the format stores their bytes in one piece. Numbers become 0-d
    arrays; texts and None are left out.

    Raises:
        InputError: one line that names the file: missing, cut short, malformed, or asking for anything but data.
    """
    return flatten(read_tree(path), path)


def read_tree(path: str | os.PathLike[str]) -> Any:
    """Like `read_arrays`, with dictionaries and lists as the file nests them, texts and numbers included."""
    with _explained(path):
        return _parse(_map(path), path)


def read_npy_arrays(buffer: memoryview, name: str, most_steps: float = math.inf) -> dict[str, np.ndarray]:
    """`read_arrays` of a `.npy` that lies in memory, a member of an archive say.

    Args:
        buffer: The file.
        name: Stands in messages.
        most_steps: Limits the memory that a stranger's pickle takes (`PickleMachine`).
    """
    from twinalign.files.numpy_files import read_npy

    with _explained(name):
        return flatten(read_npy(buffer, most_steps), name)


@contextlib.contextmanager
def _explained(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (BrokenFileError, RefusedError) as error:
        raise InputError(f"{os.fspath(path)}: {_one_line(error)}") from error
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, RecursionError) as error:
        raise InputError(f"{os.fspath(path)}: it is malformed ({type(error).__name__}: {_one_line(error)})") from error


def _one_line(error: Exception) -> str:
    # Names out of the file stand in messages, and may hold anything.
    return "".join(letter if letter.isprintable() else "?" for letter in str(error))[:500]


def _map(path: str | os.PathLike[str]) -> memoryview:
    # O_NONBLOCK: opening a named pipe must not wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{os.fspath(path)}: it is a directory; name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{os.fspath(path)}: it is not a regular file")
        if status.st_size == 0:
            raise InputError(f"{os.fspath(path)}: it is empty")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _parse(buffer: memoryview, path: str | os.PathLike[str]) -> Any:
    head = bytes(buffer[:8])
    if head.startswith(b"\x93NUMPY"):
        from twinalign.files.numpy_files import read_npy

        return read_npy(buffer)
    if head.startswith(b"PK\x03\x04"):
        return _parse_zip(buffer, path)
    if head[0] == 0x80 and len(head) > 1 and head[1] in (2, 3, 4, 5):
        from twinalign.files.pickled import read_pickle_file

        return read_pickle_file(buffer)
    from twinalign.files.safetensors_file import looks_like_safetensors, read_safetensors

    if looks_like_safetensors(buffer):
        return read_safetensors(buffer)
    raise BrokenFileError(
        "its content is none of .npy, .npz, .safetensors, .pth/.pt (torch.save) and .pdparams/.pdopt (paddle.save)"
    )


def _parse_zip(buffer: memoryview, path: str | os.PathLike[str]) -> Any:
    from twinalign.files.numpy_files import read_npz
    from twinalign.files.zip_archive import ZipArchive

    with open(path, "rb") as stream:
        archive = ZipArchive(buffer, stream)
    pickles = [name for name in archive.members if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(pickles) == 1:
        from twinalign.files.torch_files import read_torch

        return read_torch(archive, pickles[0])
    if archive.members and all(name.endswith(".npy") for name in archive.members):
        return read_npz(archive)
    raise BrokenFileError("it is a zip archive, but neither an .npz nor a file of torch.save")


def flatten(tree: Any, path: str | os.PathLike[str] = "") -> dict[str, np.ndarray]:
    """Arrays of a tree by dotted name; a bare array is named "array".

    Raises:
        InputError: two leaves have the same dotted name, or there are absurdly many.
    """
    found: dict[str, np.ndarray] = {}
    visited = letters = 0

    def visit(value: Any, name: str) -> None:
        nonlocal visited, letters
        visited += 1
        letters += len(name)
        if visited > _MAXIMUM_NODES:  # lists that share lists can unfold without end
            raise InputError(f"{os.fspath(path)}: it unfolds to more than {_MAXIMUM_NODES} values")
        if letters > _MAXIMUM_LETTERS:
            raise InputError(f"{os.fspath(path)}: its names unfold to more than {_MAXIMUM_LETTERS} letters")
        leaf = _as_array(value)
        if leaf is not None:
            name = name or SINGLE_ARRAY_NAME
            if name in found:
                raise InputError(
                    f"{os.fspath(path)}: two of its arrays are both called {name!r} once nesting is dotted"
                )
            found[name] = leaf
        elif isinstance(value, dict):
            for key, item in value.items():
                visit(item, f"{name}.{key}" if name else str(key))
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                visit(item, f"{name}.{index}" if name else str(index))

    visit(tree, "")
    return found


def _as_array(value: Any) -> np.ndarray | None:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bool | float | complex):
        return np.asarray(value)
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return np.asarray(value)
    return None
