"""Write pickles of plain containers, numpy arrays and torch tensors as each framework does, without importing it.

Only the necessary opcodes, as CPython's `Lib/pickletools.py` documents them. Arrays are written one at a time from
their own memory, so that a checkpoint is never in memory twice.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.dtypes import TORCH_STORAGES


class Deferred:
    """An array whose shape and dtype are known but that is made only when it is written."""

    shape: tuple[int, ...]
    dtype: np.dtype
    """`ml_dtypes.bfloat16` for bfloat16."""

    def load(self, scratch: Callable[[int], np.ndarray]) -> np.ndarray:
        """Make the array; `scratch(size)` lends memory, which is reused once the array is written."""
        raise NotImplementedError


class StateDict(dict[str, Any]):
    """The state dict of a torch model, with the version of each layer's part beside it, which some layers ask for."""

    def __init__(self, arrays: Mapping[str, Any], versions: Mapping[str, int]) -> None:
        """`versions`: path of a layer → version, as torch keeps them in `_metadata`."""
        super().__init__(arrays)
        self.versions = dict(versions)


def raw_bytes(array: np.ndarray) -> memoryview:
    """The array's numbers as bytes in C order and little endian, without a copy if it is stored like this."""
    array = np.ascontiguousarray(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8).data


class PickleWriter:
    """Writes one value as a pickle; subclasses say how an array is written."""

    def __init__(self, write: Callable[[Any], object], protocol: int) -> None:
        """`write` takes bytes; the protocol is 2 or 4."""
        self.write = write
        self.protocol = protocol

    def dump(self, value: Any) -> None:
        """Write a whole pickle; raises InputError for a value that is not plain data."""
        self.write(bytes((0x80, self.protocol)))
        self.value(value)
        self.write(b".")

    def value(self, value: Any) -> None:
        if value is None:
            self.write(b"N")
        elif isinstance(value, (bool, np.bool_)):
            self.write(b"\x88" if value else b"\x89")
        elif isinstance(value, (np.ndarray, Deferred)):
            self.array(value)
        elif isinstance(value, (int, np.integer)):
            self._integer(int(value))
        elif isinstance(value, (float, np.floating)):
            self.write(b"G" + struct.pack(">d", float(value)))
        elif isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
            self.write(b"X" + struct.pack("<I", len(data)) + data)
        elif isinstance(value, (list, tuple)):
            self._sequence(value)
        elif isinstance(value, Mapping):
            self._mapping(value)
        else:
            raise InputError(
                f"a checkpoint holds a {type(value).__name__}, which is not plain data and cannot be written"
            )

    def array(self, array: np.ndarray | Deferred) -> None:
        raise NotImplementedError

    def symbol(self, module: str, name: str) -> None:
        """Write a global by name; nothing is imported."""
        self.write(f"c{module}\n{name}\n".encode())

    def _integer(self, value: int) -> None:
        if -(2**31) <= value < 2**31:
            self.write(b"J" + struct.pack("<i", value))
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.write(b"\x8a" + struct.pack("<B", len(data)) + data)

    def _sequence(self, values: list[Any] | tuple[Any, ...]) -> None:
        if isinstance(values, list):
            self.write(b"]")
        self.write(b"(")
        for value in values:
            self.value(value)
        self.write(b"e" if isinstance(values, list) else b"t")

    def _mapping(self, values: Mapping[Any, Any]) -> None:
        self.write(b"}")
        self._items(values)

    def _items(self, values: Mapping[Any, Any]) -> None:
        """Write what goes into the mapping before it."""
        self.write(b"(")
        for key, value in values.items():
            self.value(key)
            self.value(value)
        self.write(b"u")


class NumpyPickleWriter(PickleWriter):
    """The format of `paddle.save`: arrays as numpy pickles them, bfloat16 as uint16; `load` makes deferred arrays."""

    def __init__(self, write: Callable[[Any], object], load: Callable[[np.ndarray | Deferred], np.ndarray]) -> None:
        super().__init__(write, 4)
        self.load = load

    def array(self, array: np.ndarray | Deferred) -> None:
        """Write `numpy.core.multiarray._reconstruct(ndarray, (0,), b'b')` and its state.

        The module has been `numpy._core` since numpy 2; the old name is known to both generations.
        """
        loaded = self.load(array)
        dtype = np.dtype("<u2") if loaded.dtype.name == "bfloat16" else loaded.dtype
        self.symbol("numpy.core.multiarray", "_reconstruct")
        self.symbol("numpy", "ndarray")
        self.write(b"K\x00\x85C\x01b\x87R")
        self.write(b"(K\x01")
        self.value(tuple(int(size) for size in loaded.shape))
        self._dtype(dtype)
        self.write(b"\x89")
        data = raw_bytes(loaded)
        self.write(b"\x8e" + struct.pack("<Q", data.nbytes))
        self.write(data)
        self.write(b"tb")

    def _dtype(self, dtype: np.dtype) -> None:
        """Write `numpy.dtype('f4', False, True)` and its state."""
        kind = f"{dtype.kind}{dtype.itemsize}"
        self.symbol("numpy", "dtype")
        self.value(kind)
        self.write(b"\x89\x88\x87R")
        order = "|" if dtype.itemsize == 1 else "<"
        self.value((3, order, None, None, None, -1, -1, 0))
        self.write(b"b")


_STORAGES = {dtype: name for name, dtype in TORCH_STORAGES.items()}


class TorchPickleWriter(PickleWriter):
    """The format of torch's `data.pkl`: tensors refer to numbered storages in other files of the archive.

    `storages` collects the arrays in the order of their numbers; an array that occurs twice is one storage.
    """

    def __init__(self, write: Callable[[Any], object]) -> None:
        super().__init__(write, 2)
        self.storages: list[np.ndarray | Deferred] = []
        self._numbers: dict[int, int] = {}

    def array(self, array: np.ndarray | Deferred) -> None:
        """Write `torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())`."""
        name = np.dtype(array.dtype).newbyteorder("=").name
        if name not in _STORAGES:
            raise InputError(f"torch has no tensors of {name}: convert such arrays first")
        number = self._numbers.setdefault(id(array), len(self.storages))
        if number == len(self.storages):
            self.storages.append(array)
        shape = tuple(int(size) for size in array.shape)
        strides = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
        self.symbol("torch._utils", "_rebuild_tensor_v2")
        self.write(b"((")
        self.value("storage")
        self.symbol("torch", _STORAGES[name])
        self.value(str(number))
        self.value("cpu")
        self.value(int(np.prod(shape, dtype=np.int64)))
        self.write(b"tQ")
        self.value(0)
        self.value(shape)
        self.value(strides)
        self.write(b"\x89")
        self.symbol("collections", "OrderedDict")
        self.write(b")RtR")

    def _mapping(self, values: Mapping[Any, Any]) -> None:
        """Write a `StateDict` as an `OrderedDict` with the attribute `_metadata`."""
        if not isinstance(values, StateDict) or not values.versions:
            super()._mapping(values)
            return
        self.symbol("collections", "OrderedDict")
        self.write(b")R")
        self._items(values)
        super()._mapping({"_metadata": {path: {"version": version} for path, version in values.versions.items()}})
        self.write(b"b")
