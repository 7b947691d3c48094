"""The globals that pickles of arrays may name, and what each builds.

The lists hold what numpy (1.x and 2.x), reprod_log and paddle.save write for arrays, state_dicts and optimizer states.
`eval` is among them by name only: paddle.save writes a DenseTensor as the call `eval('data', {'data': array})`, and our
function returns that array and refuses any other arguments.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from plain_pickles.dtypes import ML_DTYPES, array_over, checked_numeric, checked_shape, numpy_dtype
from plain_pickles.errors import BrokenFileError, RefusedError
from plain_pickles.machine import Stateful, StatefulDict, Symbol


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
    """`numpy.dtype(code, align, copy)`, whose byte order arrives as state, before any array has it."""

    def __init__(self, code: Any) -> None:
        if isinstance(code, Symbol):
            code = code.value
        if not isinstance(code, str):
            raise RefusedError("its pickle asks for a numpy type that is not given by name")
        if len(code) > 32 or not (code in ML_DTYPES or code.isalnum()):
            raise RefusedError(f"its pickle asks for the numpy type {code[:80]!r}")
        self.object = code[:1] == "O"
        self._is_settled = False
        if not self.object:
            try:
                self._dtype = checked_numeric(numpy_dtype(code))
            except TypeError as error:
                raise BrokenFileError(f"numpy has no type {code!r}") from error

    @property
    def dtype(self) -> np.dtype:
        """The type; its byte order can no longer change."""
        self._is_settled = True
        return self._dtype

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or any(part is not None for part in state[2:5]):
            raise RefusedError("its pickle holds an array of structures, which are not numbers")
        if self._is_settled:
            raise RefusedError("its pickle changes a numpy type that is in use")
        self._is_settled = True
        if not self.object and state[1] == ">":
            self._dtype = self._dtype.newbyteorder(">")

    def finished(self) -> Any:
        raise RefusedError("its pickle holds a bare numpy type where data should be")


class _PendingArray(Stateful):
    """`numpy.ndarray` between `_reconstruct` and its state (version, shape, dtype, is_fortran, data)."""

    def __init__(self) -> None:
        self._array: Any = None

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) not in (4, 5) or self._array is not None:
            raise BrokenFileError("an array's state is malformed")
        shape, dtype, fortran, data = state[-4:]
        if not isinstance(dtype, _PendingDtype) or type(fortran) not in (bool, int):
            raise BrokenFileError("an array's state is malformed")
        if not dtype.object:
            self._array = array_over(as_buffer(data), dtype.dtype, shape, bool(fortran))
        elif isinstance(data, list) and math.prod(checked_shape(shape)) == len(data):
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
    if not isinstance(dtype, _PendingDtype) or dtype.object or order not in ("C", "F") or axis_order is not None:
        raise BrokenFileError("an array's buffer is malformed")
    return array_over(as_buffer(data), dtype.dtype, shape, order == "F")


def _scalar(dtype: Any, data: Any = b"") -> np.ndarray:
    if not isinstance(dtype, _PendingDtype) or dtype.object:
        raise BrokenFileError("a numpy scalar is malformed")
    return array_over(as_buffer(data), dtype.dtype, ())


def _encode(text: Any, encoding: Any = "utf-8") -> bytes:
    known = isinstance(encoding, str) and encoding in ("latin1", "latin-1", "utf-8", "ascii")
    if not isinstance(text, str) or not known:
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
    found = StatefulDict()
    for key, value in items:
        found.put(key, value)
    return found


def _counter(counts: Any = None) -> StatefulDict:
    if counts is not None and not isinstance(counts, dict):
        raise BrokenFileError("a Counter is malformed")
    return StatefulDict(counts or {})


def sequence(items: Any = ()) -> tuple[Any, ...]:
    """What `tuple` makes of a list or tuple; raises BrokenFileError for anything else."""
    if not isinstance(items, list | tuple):
        raise BrokenFileError("a tuple is made from something else")
    return tuple(items)


def _complex(real: Any, imaginary: Any) -> complex:
    if not isinstance(real, float) or not isinstance(imaginary, float):
        raise BrokenFileError("a complex number is malformed")
    return complex(real, imaginary)


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
        "collections.defaultdict": lambda factory=None, items=(): _ordered_dict(items),
        "collections.Counter": _counter,
        "_codecs.encode": _encode,
        "builtins.tuple": sequence,
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
