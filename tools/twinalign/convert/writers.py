"""Write checkpoints in either framework's own formats, without the framework; whole or not at all.

`.pth` files load with `torch.load(weights_only=True)`, `.pdparams` and `.pdopt` with `paddle.load`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import errno
import fcntl
import glob
import io
import json
import math
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from twinalign.convert.pickles import Deferred, NumpyPickleWriter, TorchPickleWriter, raw_bytes
from twinalign.errors import InputError
from twinalign.files.checksum import fast_zipfile

_SAFETENSORS_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "bool": "BOOL",
}

NAME_TABLE = "StructuredToParameterName@@"
"""Key under which `.pdparams` keeps the parameters' global names; `paddle.load` makes tensors of what it lists."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when the block ends well; otherwise the old file stands untouched.

    What a killed process left of an earlier try is removed. Raises InputError where the folder or the space is wanting.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    _clear_abandoned(path)
    try:
        with open(beside, "wb") as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
        os.replace(beside, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(f"{path}: the disk is full; nothing was written, make room and repeat") from None
        if error.errno == errno.EFBIG:
            raise InputError(
                f"{path}: it grows larger than files may be here (ulimit -f); nothing was written, raise the limit"
            ) from None
        raise InputError(f"{path}: cannot be written ({error.strerror}); nothing was written") from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _clear_abandoned(path: Path) -> None:
    """Remove parts of `path` that nobody writes any more: their writer is dead and holds no lock."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        number = part.name.removesuffix(".part").rpartition(".")[2]
        if not number.isdigit() or _is_alive(int(number)):
            continue
        # The writer may be alive on another machine that shares the folder; then its lock is held.
        with contextlib.suppress(OSError), part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True


class Loader:
    """Makes deferred arrays in the order in which they are written, ahead of the writing, in a thread.

    Making an array is copying memory and writing it is waiting for the system, so the two overlap. Of large arrays one
    at a time is made ahead; small ones between them (a bias beside every weight) do not count.
    """

    _LARGE = 2**20
    _MOST_AHEAD = 64

    def __init__(self, arrays: Sequence[np.ndarray | Deferred]) -> None:
        """`arrays` in the order in which they will be asked for."""
        self._waiting = collections.deque(array for array in arrays if not isinstance(array, np.ndarray))
        self._scratch = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._ahead: collections.deque[concurrent.futures.Future[np.ndarray]] = collections.deque()
        self._large_ahead = 0
        self._submit()

    def _submit(self) -> None:
        while self._waiting and self._large_ahead == 0 and len(self._ahead) < self._MOST_AHEAD:
            following = self._waiting.popleft()
            self._large_ahead += self._is_large(following)
            self._ahead.append(self._pool.submit(following.load, self._lend))

    def _is_large(self, array: Deferred) -> bool:
        return size_of(array) >= self._LARGE

    def _lend(self, size: int) -> np.ndarray:
        """For a large array one of two pieces of memory in turn: one array is written while the next is made."""
        if size < self._LARGE:
            return np.empty(size, np.uint8)
        self._scratch.reverse()
        if self._scratch[0].nbytes < size:
            self._scratch[0] = np.empty(size, np.uint8)
        return self._scratch[0][:size]

    def __call__(self, array: np.ndarray | Deferred) -> np.ndarray:
        """The array itself, or what the next deferred one makes."""
        if isinstance(array, np.ndarray):
            return array
        made = self._ahead.popleft().result()
        self._large_ahead -= self._is_large(array)
        self._submit()
        return made

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)


def size_of(array: np.ndarray | Deferred) -> int:
    """Bytes of the array's numbers."""
    return math.prod(array.shape) * np.dtype(array.dtype).itemsize


def arrays_in(tree: Any) -> list[np.ndarray | Deferred]:
    """Every array of a tree in the order in which it is written."""
    if isinstance(tree, (np.ndarray, Deferred)):
        return [tree]
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    return [array for item in tree for array in arrays_in(item)] if isinstance(tree, (list, tuple)) else []


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())


def write_torch(path: Path, tree: Any) -> None:
    """Write what `torch.save(tree, path)` would: a zip with one pickle and one file a storage."""
    text = io.BytesIO()
    writer = TorchPickleWriter(text.write)
    writer.dump(tree)
    with _archive(path) as archive, Loader(writer.storages) as load:
        _member(archive, "archive/data.pkl", text.getbuffer())
        _member(archive, "archive/byteorder", memoryview(b"little"))
        for number, array in enumerate(writer.storages):
            _member(archive, f"archive/data/{number}", raw_bytes(load(array)))
        _member(archive, "archive/version", memoryview(b"3\n"))


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An uncompressed zip archive that takes the place of `path` when the block ends well."""
    with (
        fast_zipfile(),
        replacing(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
    ):
        yield archive


def _member(archive: zipfile.ZipFile, name: str, data: memoryview) -> None:
    information = zipfile.ZipInfo(name)  # its default date makes equal content an equal file
    with archive.open(information, "w", force_zip64=data.nbytes >= 2**31 - 1) as member:
        member.write(data)


def write_paddle(path: Path, tree: Any, parameter_names: Mapping[str, str] | None = None) -> None:
    """Write what `paddle.save(tree, path)` would: a pickle of numpy arrays.

    `parameter_names`: key → paddle's global name, for a state dict; every array is listed, under its key where no name
    is given, because `paddle.load` makes tensors only of what the table lists.
    """
    if isinstance(tree, Mapping):
        names = parameter_names or {}
        table = {key: names.get(key, key) for key, value in tree.items() if isinstance(value, (np.ndarray, Deferred))}
        tree = {**tree, NAME_TABLE: table} if table else tree
    with replacing(path) as file, Loader(arrays_in(tree)) as load:
        NumpyPickleWriter(file.write, load).dump(tree)


def write_npz(path: Path, arrays: Mapping[str, np.ndarray | Deferred]) -> None:
    """Write what `numpy.savez(path, **arrays)` would, one array at a time; texts are arrays of numpy's str."""
    with _archive(path) as archive, Loader(list(arrays.values())) as load:
        for name, array in arrays.items():
            loaded = load(array)
            if loaded.dtype.name == "bfloat16":
                raise InputError(f"{path}: .npz has no bfloat16, the dtype of {name!r}; write .pdparams")
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                # np.lib.format.write_array copies once more, in small pieces, wherever it is not given a real file.
                kind = loaded.dtype.newbyteorder("<").str  # as `raw_bytes` gives the numbers
                header = {"descr": kind, "fortran_order": False, "shape": loaded.shape}
                np.lib.format.write_array_header_1_0(member, header)
                member.write(raw_bytes(loaded))


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray | Deferred], metadata: Mapping[str, str]) -> None:
    """Write a .safetensors file; raises InputError for what the format cannot hold (anything but named arrays)."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, array in arrays.items():
        if not isinstance(array, (np.ndarray, Deferred)):
            raise InputError(f"{path}: .safetensors holds arrays only, and {name!r} is a {type(array).__name__}")
        kind = _SAFETENSORS_NAMES.get(np.dtype(array.dtype).name)
        if kind is None:
            raise InputError(f"{path}: .safetensors has no {array.dtype}, the dtype of {name!r}")
        size = size_of(array)
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as file, Loader(list(arrays.values())) as load:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            file.write(raw_bytes(load(array)))
