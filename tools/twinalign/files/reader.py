"""Read any supported file: detect its format by content, return a tree or a flat dictionary."""

import contextlib
import mmap
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from plain_pickles.errors import BrokenFileError, RefusedError
from plain_pickles.machine import MOST_STEPS
from twinalign.errors import InputError
from twinalign.files.dtypes import EXPANDED_BYTES, EXPANDED_SHARE
from twinalign.files.text import printable, shown

_MAXIMUM_NODES = 1_000_000
_MAXIMUM_LETTERS = 1 << 26
"""Bytes of all names together: a long name is repeated before the name of everything that is nested in it."""
SINGLE_ARRAY_NAME = "array"
"""Name that a file of one bare array gives to it."""


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Arrays of a file by name, nested names joined with dots, in the file's order.

    Formats, detected by content and not by suffix: `.npy` (a plain array, named "array", or reprod_log's dictionary),
    `.npz`, `.safetensors`, torch's `.pth`/`.pt` (zip and the format before torch 1.6), paddle's `.pdparams`/`.pdopt`.
    Arrays are read-only, and memory-mapped if the format stores their bytes in one piece. Numbers become 0-d arrays;
    texts and None are left out.

    Raises:
        InputError: one line that names the file: missing, cut short, malformed, or asking for anything but data.
    """
    with _explained(path):
        buffer = _map(path)
        return flatten(_parse(buffer, path), is_recording=_is_npy(buffer))


def read_tree(path: str | os.PathLike[str]) -> Any:
    """Like `read_arrays`, but nested dictionaries and lists as in the file, including texts and numbers."""
    with _explained(path):
        tree = _parse(_map(path), path)
        for _ in _leaves(tree):  # which ends if they are too many
            pass
        return tree


def member_names(path: str | os.PathLike[str]) -> list[str]:
    """Names of the members of a zip archive; raises InputError as `read_arrays` does."""
    with _explained(path):
        return _open_zip(_map(path), path).members


def read_npy_arrays(buffer: memoryview, name: str, most_steps: int = MOST_STEPS) -> dict[str, np.ndarray]:
    """`read_arrays` for a `.npy` in memory, called `name` in messages; `most_steps` as in `PickleMachine`."""
    from twinalign.files.numpy_files import read_npy

    with _explained(name):
        return flatten(read_npy(buffer, most_steps), is_recording=True)


@contextlib.contextmanager
def _explained(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (BrokenFileError, RefusedError) as error:
        raise InputError(f"{os.fspath(path)}: {shown(str(error), 500)}") from error
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, RecursionError) as error:
        raise InputError(
            f"{os.fspath(path)}: it is malformed ({type(error).__name__}: {printable(str(error))[:500]})"
        ) from error


@contextlib.contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to read it; raises InputError for what is none, a pipe or a device, which may have no end."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: {error.strerror or error}") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{os.fspath(path)}: it is a directory; name a file in it")
        if not stat.S_ISREG(mode):
            raise InputError(f"{os.fspath(path)}: it is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _map(path: str | os.PathLike[str]) -> memoryview:
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise InputError(f"{os.fspath(path)}: it is empty")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _parse(buffer: memoryview, path: str | os.PathLike[str]) -> Any:
    head = bytes(buffer[:8])
    if _is_npy(buffer):
        from twinalign.files.numpy_files import read_npy

        return read_npy(buffer)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):  # the second: an archive without members
        return _parse_zip(buffer, path)
    if head[0] == 0x80 and len(head) > 1 and head[1] in (2, 3, 4, 5):
        from twinalign.files.pickled import read_pickle_file

        return read_pickle_file(buffer)
    from twinalign.files.safetensors_file import looks_like_safetensors, read_safetensors

    if looks_like_safetensors(buffer):
        return read_safetensors(buffer)
    raise BrokenFileError(
        "its content is not .npy, .npz, .safetensors, .pth/.pt (torch.save) or .pdparams/.pdopt (paddle.save)"
    )


def _is_npy(buffer: memoryview) -> bool:
    return bytes(buffer[:6]) == b"\x93NUMPY"


def _open_zip(buffer: memoryview, path: str | os.PathLike[str]) -> Any:
    from twinalign.files.zip_archive import ZipArchive

    with open(path, "rb") as stream:
        return ZipArchive(buffer, stream)


def _parse_zip(buffer: memoryview, path: str | os.PathLike[str]) -> Any:
    from twinalign.files.numpy_files import read_npz

    archive = _open_zip(buffer, path)
    pickles = [name for name in archive.members if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(pickles) == 1:
        from twinalign.files.torch_files import read_torch

        return read_torch(archive, pickles[0])
    if all(name.endswith(".npy") for name in archive.members):
        return read_npz(archive)
    raise BrokenFileError("it is a zip archive, but neither an .npz nor a file of torch.save")


def flatten(tree: Any, is_recording: bool = False) -> dict[str, np.ndarray]:
    """Arrays of a tree by dotted name; a bare array is named "array".

    A recording holds arrays and numbers alone; out of other trees texts and None are left out.

    Raises:
        BrokenFileError: two leaves have the same dotted name, or there are absurdly many.
        RefusedError: something is no array of numbers.
    """
    found: dict[str, np.ndarray] = {}
    for name, value in _leaves(tree):
        leaf = _as_array(value)
        name = name or SINGLE_ARRAY_NAME
        if leaf is not None:
            if name in found:
                raise BrokenFileError(f"two of its arrays are both called {shown(name)!r} once nesting is dotted")
            found[name] = leaf
        elif isinstance(value, int):
            raise RefusedError(f"{shown(name)!r} in it is a whole number beyond 64 bits")
        elif is_recording or not isinstance(value, str | bytes | None):
            kind = "None" if value is None else f"of type {type(value).__name__}"
            raise RefusedError(f"{shown(name)!r} in it is {kind}, and a recording holds arrays and numbers alone")
    return found


def _leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Dotted name and value of everything in a tree that is no container, in order.

    Raises:
        BrokenFileError: it unfolds to absurdly many values, letters of names or bytes of arrays.
    """
    visited = letters = in_arrays = in_memory = 0
    arrays: set[int] = set()
    memories: set[int] = set()
    waiting: list[Iterator[tuple[str, Any]]] = [iter([("", tree)])]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
            continue
        name, value = entry
        visited += 1
        letters += len(name)
        if visited > _MAXIMUM_NODES:  # lists that share lists can unfold without end
            raise BrokenFileError(f"it unfolds to more than {_MAXIMUM_NODES} values")
        if letters > _MAXIMUM_LETTERS:
            raise BrokenFileError(f"its names unfold to more than {_MAXIMUM_LETTERS} letters")
        if isinstance(value, dict | list | tuple):
            waiting.append(_within(name, value))
            continue
        if isinstance(value, np.ndarray):
            in_arrays += 8 * value.size
            if id(value) not in arrays:
                arrays.add(id(value))
                memory, size = _memory_of(value)
                in_memory += 0 if memory in memories else size
                memories.add(memory)
            if in_arrays > EXPANDED_BYTES + EXPANDED_SHARE * in_memory:
                raise BrokenFileError("its arrays share their bytes and unfold to far more than it holds")
        if not name.isascii():
            name.encode()  # which raises for a name that no file can hold
        yield name, value


def _within(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield f"{name}.{key}" if name else str(key), item


def _memory_of(array: np.ndarray) -> tuple[int, int]:
    """The object that holds an array's numbers, by its id, and its size in bytes."""
    base: Any = array
    while True:
        if isinstance(base, memoryview):
            base = base.obj
        elif isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        else:
            return id(base), base.nbytes if isinstance(base, np.ndarray) else len(base)


def _as_array(value: Any) -> np.ndarray | None:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bool | float | complex):
        return np.asarray(value)
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return np.asarray(value)
    return None
