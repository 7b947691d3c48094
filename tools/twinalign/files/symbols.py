"""What pickles of arrays may name, and what each name builds.

The lists hold what numpy (1.x and 2.x), reprod_log, paddle.save and torch.save write for arrays, tensors, state_dicts
and optimizer states. `eval` is among them by name only: paddle.save writes a DenseTensor as the call
`eval('data', {'data': array})`, and the function here gives back that array and refuses any other arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinalign.files.dtypes import (
    ML_DTYPES,
    TORCH_DTYPES,
    TORCH_STORAGES,
    array_over,
    checked_numeric,
    numpy_dtype,
)
from twinalign.files.errors import BrokenFileError, RefusedError
from twinalign.files.pickle_machine import Stateful, StatefulDict, Symbol


def as_buffer(data: Any) -> memoryview:
    """Bytes of an array's data, which Python 2 wrote as text."""
    if isinstance(data, memoryview):
        return data
    if isinstance(data, str):
        data = data.encode("latin-1")
    if not isinstance(data, bytes | bytearray):
        raise BrokenFileError(f"an array's data is a {type(data).__name__}")
    return memoryview(data)


class _PendingDtype(Stateful):
    """`numpy.dtype(code, align, copy)`, whose byte order arrives as state."""

    def __init__(self, code: Any) -> None:
        if isinstance(code, Symbol):
            code = code.value
        if not isinstance(code, str) or len(code) > 32 or not (code in ML_DTYPES or code.isalnum()):
            raise RefusedError(f"its pickle asks for the numpy type {code!r}")
        self.object = code[:1] == "O"
        if not self.object:
            try:
                self.dtype = checked_numeric(numpy_dtype(code))
            except TypeError as error:
                raise BrokenFileError(f"numpy has no type {code!r}") from error

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or any(part is not None for part in state[2:5]):
            raise RefusedError("its pickle holds an array of structures, which cannot be compared as numbers")
        if not self.object and state[1] == ">":
            self.dtype = self.dtype.newbyteorder(">")

    def finished(self) -> Any:
        raise RefusedError("its pickle holds a bare numpy type where data should be")


class _PendingArray(Stateful):
    """`numpy.ndarray` between `_reconstruct` and its state (version, shape, dtype, is_fortran, data)."""

    def __init__(self) -> None:
        self._array: Any = None

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise BrokenFileError("an array's state is malformed")
        shape, dtype, fortran, data = state[-4:]
        if not isinstance(dtype, _PendingDtype) or not isinstance(shape, tuple):
            raise BrokenFileError("an array's state is malformed")
        if not dtype.object:
            self._array = array_over(as_buffer(data), dtype.dtype, shape, bool(fortran))
        elif isinstance(data, list):
            # An object array is how numpy wraps what is no array: a dictionary (shape ()) or a list of arrays.
            self._array = data[0] if shape == () and len(data) == 1 else data
        else:
            raise BrokenFileError("an array of objects has no list of them")

    def finished(self) -> Any:
        if self._array is None:
            raise BrokenFileError("an array was announced and never filled")
        return self._array


def _reconstruct(kind: Any, shape: Any, code: Any) -> _PendingArray:
    if not isinstance(kind, Symbol) or kind.name != "numpy.ndarray":
        raise RefusedError("its pickle builds a subclass of numpy.ndarray")
    return _PendingArray()


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any = "C", axis_order: Any = None) -> np.ndarray:
    if not isinstance(dtype, _PendingDtype) or dtype.object or not isinstance(shape, tuple) or axis_order is not None:
        raise BrokenFileError("an array's buffer is malformed")
    return array_over(as_buffer(data), dtype.dtype, shape, order == "F")


def _scalar(dtype: Any, data: Any = b"") -> np.ndarray:
    if not isinstance(dtype, _PendingDtype) or dtype.object:
        raise BrokenFileError("a numpy scalar is malformed")
    return array_over(as_buffer(data), dtype.dtype, ())


def _encode(text: Any, encoding: Any = "utf-8") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise BrokenFileError("its pickle encodes something that is not text")
    return text.encode(encoding)


def _paddle_dense_tensor(*arguments: Any) -> Any:
    match arguments:
        case ("data", {"data": array, **others}) if not others:
            return array
    raise RefusedError("its pickle calls eval; nothing was run")


def _ordered_dict(items: Any = ()) -> StatefulDict:
    if not isinstance(items, list | tuple) or not all(
        isinstance(item, list | tuple) and len(item) == 2 for item in items
    ):
        raise BrokenFileError("an OrderedDict is malformed")
    return StatefulDict((key, value) for key, value in items)


def _counter(counts: Any = None) -> StatefulDict:
    if counts is not None and not isinstance(counts, dict):
        raise BrokenFileError("a Counter is malformed")
    return StatefulDict(counts or {})


def _default_dict(factory: Any = None, items: Any = ()) -> StatefulDict:
    return _ordered_dict(items)


def _sequence(items: Any = ()) -> tuple[Any, ...]:
    if not isinstance(items, list | tuple):
        raise BrokenFileError("a tuple is made from something else")
    return tuple(items)


def _set(items: Any = ()) -> set[Any]:
    return set(_sequence(items))


def _complex(real: Any, imaginary: Any) -> complex:
    return complex(float(real), float(imaginary))


def _bytes(data: Any = b"", encoding: Any = None) -> bytes:
    if isinstance(data, str):
        return _encode(data, encoding)
    return bytes(as_buffer(data)) if not isinstance(data, list) else bytes(data)


def _numpy_symbols() -> dict[str, Symbol]:
    found: dict[str, Callable[..., Any]] = {}
    for package in ("numpy.core", "numpy._core"):
        found[f"{package}.multiarray._reconstruct"] = _reconstruct
        found[f"{package}.multiarray.scalar"] = _scalar
        found[f"{package}.numeric._frombuffer"] = _from_buffer
    symbols = {name: Symbol(name, build) for name, build in found.items()}
    symbols["numpy.ndarray"] = Symbol("numpy.ndarray")
    symbols["numpy.dtype"] = Symbol("numpy.dtype", lambda code, align=False, copy=True: _PendingDtype(code))
    for name in ML_DTYPES:
        symbols[f"ml_dtypes.{name}"] = Symbol(f"ml_dtypes.{name}", value=name)
    return symbols


def _container_symbols() -> dict[str, Symbol]:
    builders: dict[str, Callable[..., Any]] = {
        "collections.OrderedDict": _ordered_dict,
        "collections.defaultdict": _default_dict,
        "collections.Counter": _counter,
        "_codecs.encode": _encode,
        "builtins.tuple": _sequence,
        "builtins.set": _set,
        "builtins.frozenset": _set,
        "builtins.complex": _complex,
        "builtins.bytes": _bytes,
        "builtins.bytearray": _bytes,
        "builtins.eval": _paddle_dense_tensor,
    }
    symbols = {name: Symbol(name, build) for name, build in builders.items()}
    for name, symbol in list(symbols.items()):  # protocol 2 writes the names of Python 2
        symbols[name.replace("builtins.", "__builtin__.")] = symbol
    for name in ("builtins.dict", "builtins.list", "builtins.int", "builtins.float"):  # arguments of defaultdict
        symbols[name] = symbols[name.replace("builtins.", "__builtin__.")] = Symbol(name)
    return symbols


NUMPY_SYMBOLS: Mapping[str, Symbol] = {**_numpy_symbols(), **_container_symbols()}


class Storage:
    """Bytes of a torch storage; in the legacy format they arrive after the pickle that refers to them."""

    def __init__(self, dtype: str, count: int) -> None:
        self.dtype = dtype
        self.count = count
        self.data: memoryview | None = None
        self.big_endian = False


class PendingTensor(Stateful):
    """A torch tensor: a strided view of a storage, made once the storage's bytes are there."""

    def __init__(self, storage: Any, offset: Any, size: Any, stride: Any, dtype: str | None = None) -> None:
        numbers = [offset, *size, *stride] if isinstance(size, tuple) and isinstance(stride, tuple) else [None]
        if not isinstance(storage, Storage) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise BrokenFileError("a torch tensor is malformed")
        if len(size) != len(stride) or len(size) > 32:
            raise BrokenFileError(f"a torch tensor has size {size} and stride {stride}")
        self._storage, self._offset, self._size, self._stride = storage, offset, size, stride
        self._dtype = dtype

    def set_state(self, state: Any) -> None:
        """Attributes set on a tensor are not data."""

    def finished(self) -> np.ndarray:
        """The strided view; raises BrokenFileError where it reaches beyond its storage."""
        storage = self._storage
        if storage.data is None:
            raise BrokenFileError("a torch tensor's storage is missing")
        dtype = numpy_dtype(self._dtype or storage.dtype)
        if storage.big_endian:
            dtype = dtype.newbyteorder(">")
        count = int(np.prod([float(extent) for extent in self._size])) if self._size else 1
        if count * dtype.itemsize > max(2**30, 1024 * len(storage.data)):
            raise BrokenFileError(f"a torch tensor of size {self._size} stands on {len(storage.data)} bytes")
        strides = tuple(step * dtype.itemsize for step in self._stride)
        try:
            array = np.ndarray(self._size, dtype, storage.data, self._offset * dtype.itemsize, strides)
        except (ValueError, TypeError, OverflowError) as error:
            raise BrokenFileError(f"a torch tensor of size {self._size} reaches beyond its storage") from error
        array.flags.writeable = False
        return array


def _tensor_v2(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> PendingTensor:
    return PendingTensor(storage, offset, size, stride)


def _tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, gradient: Any, hooks: Any, dtype: Any, *_: Any
) -> PendingTensor:
    if not isinstance(dtype, Symbol) or not isinstance(dtype.value, str):
        raise BrokenFileError("a torch tensor's type is malformed")
    return PendingTensor(storage, offset, size, stride, dtype.value)


def _parameter(data: Any, *_: Any) -> Any:
    return data


def _tensor_subclass(build: Any, kind: Any, arguments: Any, state: Any = None) -> Any:
    plain = ("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
    if not isinstance(build, Symbol) or not isinstance(kind, Symbol) or kind.name not in plain:
        raise RefusedError("its pickle builds a subclass of torch.Tensor")
    return build(*_sequence(arguments))


def _torch_symbols() -> dict[str, Symbol]:
    builders: dict[str, Callable[..., Any]] = {
        "torch._utils._rebuild_tensor": _tensor_v2,
        "torch._utils._rebuild_tensor_v2": _tensor_v2,
        "torch._utils._rebuild_tensor_v3": _tensor_v3,
        "torch._utils._rebuild_parameter": _parameter,
        "torch._utils._rebuild_parameter_with_state": _parameter,
        "torch._tensor._rebuild_from_type_v2": _tensor_subclass,
        "torch.nn.parameter.Parameter": _parameter,
        "torch.Size": _sequence,
        "torch.device": lambda *parts: ":".join(str(part) for part in parts),
        "torch.serialization._get_layout": lambda name: str(name),
    }
    symbols = {name: Symbol(name, build) for name, build in builders.items()}
    for name in ("torch.Tensor", "torch.nn.parameter.Buffer"):
        symbols[name] = Symbol(name)
    for name, dtype in TORCH_DTYPES.items():
        if dtype is not None:
            symbols[f"torch.{name}"] = Symbol(f"torch.{name}", value=dtype)
    for name, dtype in TORCH_STORAGES.items():
        symbols[f"torch.{name}"] = Symbol(f"torch.{name}", value=dtype)
    for name in ("torch.storage.UntypedStorage", "torch.UntypedStorage"):
        symbols[name] = Symbol(name, value="uint8")
    return symbols


TORCH_SYMBOLS: Mapping[str, Symbol] = {**NUMPY_SYMBOLS, **_torch_symbols()}
