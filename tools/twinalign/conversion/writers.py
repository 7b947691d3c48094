"""Write checkpoints in either framework's formats, without the framework; a file appears complete or not at all.

`.pth` files load with `torch.load(weights_only=True)`, `.pdparams` and `.pdopt` with `paddle.load`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import io
import json
import math
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.conversion.pickles import Deferred, NumpyPickleWriter, TorchPickleWriter, raw_bytes
from twinalign.errors import InputError
from twinalign.files.dtypes import SAFETENSORS_DTYPES
from twinalign.files.writer import fast_zipfile, replacing

_SAFETENSORS_NAMES = {
    dtype: code for code, dtype in SAFETENSORS_DTYPES.items() if not dtype.startswith(("complex", "float8"))
}
NAME_TABLE = "StructuredToParameterName@@"
"""Key under which `.pdparams` keeps the parameters' global names; `paddle.load` makes tensors of what it lists."""


class Loader:
    """Makes deferred arrays in a thread, ahead of the writing and in its order.

    Making an array copies memory and writing it waits for the system, so the two overlap. Only one large array is made
    ahead; small ones between them (the bias of each weight) do not count.
    """

    _LARGE = 2**20
    _MOST_AHEAD = 64

    def __init__(self, arrays: Sequence[np.ndarray | Deferred]) -> None:
        self._waiting = collections.deque(array for array in arrays if not isinstance(array, np.ndarray))
        self._scratch = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._ahead: collections.deque[concurrent.futures.Future[np.ndarray]] = collections.deque()
        self._large_ahead = 0
        self._submit()

    def _submit(self) -> None:
        while self._waiting and self._large_ahead == 0 and len(self._ahead) < self._MOST_AHEAD:
            following = self._waiting.popleft()
            self._large_ahead += size_of(following) >= self._LARGE
            self._ahead.append(self._pool.submit(following.load, self._lend))

    def _lend(self, size: int) -> np.ndarray:
        """Large arrays use two pieces of memory in turn: one array is written while the next is made."""
        if size < self._LARGE:
            return np.empty(size, np.uint8)
        self._scratch.reverse()
        if self._scratch[0].nbytes < size:
            self._scratch[0] = np.empty(size, np.uint8)
        return self._scratch[0][:size]

    def __call__(self, array: np.ndarray | Deferred) -> np.ndarray:
        if isinstance(array, np.ndarray):
            return array
        made = self._ahead.popleft().result()
        self._large_ahead -= size_of(array) >= self._LARGE
        self._submit()
        return made

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)


def size_of(array: np.ndarray | Deferred) -> int:
    """Size of the array's numbers in bytes."""
    return math.prod(array.shape) * np.dtype(array.dtype).itemsize


def arrays_in(tree: Any) -> list[np.ndarray | Deferred]:
    """Every array of a tree, in the order of writing."""
    if isinstance(tree, (np.ndarray, Deferred)):
        return [tree]
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    return [array for item in tree for array in arrays_in(item)] if isinstance(tree, (list, tuple)) else []


def write_torch(path: Path, tree: Any) -> None:
    """Write the file of `torch.save(tree, path)`: a zip with one pickle and one file per storage."""
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
    """Write the file of `paddle.save(tree, path)`: a pickle of numpy arrays.

    `parameter_names`: key → paddle's global name, for a state dict. Every array is listed, under its key if it has no
    such name, because `paddle.load` makes tensors only of listed entries.
    """
    if isinstance(tree, Mapping):
        names = parameter_names or {}
        table = {key: names.get(key, key) for key, value in tree.items() if isinstance(value, (np.ndarray, Deferred))}
        tree = {**tree, NAME_TABLE: table} if table else tree
    with replacing(path) as file, Loader(arrays_in(tree)) as load:
        NumpyPickleWriter(file.write, load).dump(tree)


def write_npz(path: Path, arrays: Mapping[str, np.ndarray | Deferred]) -> None:
    """Write the file of `numpy.savez(path, **arrays)`, one array at a time; texts are arrays of numpy's str."""
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
    """Write a .safetensors file; raises InputError for anything but arrays of the format's dtypes."""
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
