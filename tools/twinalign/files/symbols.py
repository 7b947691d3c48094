"""The globals that torch's pickles of tensors may name besides numpy's, and what each builds."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from plain_pickles.dtypes import checked_shape, numpy_dtype
from plain_pickles.errors import BrokenFileError, RefusedError
from plain_pickles.machine import Stateful, Symbol
from plain_pickles.symbols import NUMPY_SYMBOLS, sequence
from twinalign.files.dtypes import EXPANDED_BYTES, EXPANDED_SHARE, TORCH_DTYPES, TORCH_STORAGES

_PLAIN = (str, int, float, bool, type(None))


class Storage:
    """The bytes of a torch storage; in the legacy format they come after the pickle that refers to them."""

    def __init__(self, dtype: str, count: int) -> None:
        self.dtype = dtype
        self.count = count
        self.data: memoryview | None = None
        self.big_endian = False


class PendingTensor(Stateful):
    """A torch tensor: a strided view of a storage, made once the storage's bytes are known."""

    def __init__(
        self, storage: Any, offset: Any, size: Any, stride: Any, dtype: str | None = None, bits: Any = None
    ) -> None:
        if not isinstance(storage, Storage) or type(offset) is not int or offset < 0:
            raise BrokenFileError("a torch tensor is malformed")
        if len(checked_shape(size)) != len(checked_shape(stride)):
            raise BrokenFileError("a torch tensor has another number of sizes than of strides")
        # torch keeps a conjugated or negated view as it was, and says so beside it.
        bits = {} if bits is None else bits
        if not isinstance(bits, dict) or not all(key in ("conj", "neg") and type(bits[key]) is bool for key in bits):
            raise RefusedError("its pickle holds a torch tensor with unknown metadata")
        self._storage, self._offset, self._size, self._stride = storage, offset, size, stride
        self._dtype, self._bits = dtype, bits

    def set_state(self, state: Any) -> None:
        raise RefusedError("its pickle sets the state of a torch tensor, which could replace its numbers")

    def finished(self) -> np.ndarray:
        """The strided view, a copy if it is conjugated or negated; raises BrokenFileError if it exceeds its storage."""
        storage = self._storage
        if storage.data is None:
            raise BrokenFileError("a torch tensor's storage is missing")
        dtype = numpy_dtype(self._dtype or storage.dtype)
        if storage.big_endian:
            dtype = dtype.newbyteorder(">")
        count, size, available = math.prod(self._size), list(self._size), len(storage.data)
        # In Python's integers: numpy's own check overflows.
        last = self._offset + sum((extent - 1) * step for extent, step in zip(size, self._stride, strict=True))
        if count and (last + 1) * dtype.itemsize > available:
            raise BrokenFileError(f"a torch tensor of size {size} reaches beyond its storage")
        if count * 8 > EXPANDED_BYTES + EXPANDED_SHARE * available:
            raise BrokenFileError(f"a torch tensor of size {size} stands on {available} bytes")
        # Without elements any offset and strides will do.
        steps = [step * dtype.itemsize for step in self._stride] if count else [0] * len(size)
        array = np.ndarray(self._size, dtype, storage.data, self._offset * dtype.itemsize if count else 0, tuple(steps))
        if True in self._bits.values():
            if dtype.kind not in "fc":
                raise RefusedError(f"its pickle holds a conjugated or negated tensor of {dtype}")
            array = np.conj(array) if self._bits.get("conj") else array
            array = np.negative(array) if self._bits.get("neg") else array
        array.flags.writeable = False
        return array


def _tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, gradient: Any = None, hooks: Any = None, bits: Any = None
) -> PendingTensor:
    return PendingTensor(storage, offset, size, stride, bits=bits)


def _tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, gradient: Any, hooks: Any, dtype: Any, bits: Any = None
) -> PendingTensor:
    if not isinstance(dtype, Symbol) or not isinstance(dtype.value, str):
        raise BrokenFileError("a torch tensor's type is malformed")
    return PendingTensor(storage, offset, size, stride, dtype.value, bits)


def _tensor_subclass(build: Any, kind: Any, arguments: Any, state: Any = None) -> Any:
    plain = ("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
    if not isinstance(kind, Symbol) or kind.name not in plain:
        raise RefusedError("its pickle builds a subclass of torch.Tensor")
    if not isinstance(build, Symbol) or build.build not in (_tensor_v2, _tensor_v3) or not isinstance(arguments, tuple):
        raise RefusedError("its pickle builds a torch tensor in an unknown way")
    _check_attributes(state)
    return build(*arguments)


def _parameter_with_state(data: Any, gradient: Any = None, hooks: Any = None, state: Any = None) -> Any:
    _check_attributes(state)
    return data


def _check_attributes(state: Any) -> None:
    """Attributes of a tensor are not its data, and are dropped: plain values only, an array could replace the data."""
    parts = state if isinstance(state, tuple) else (state,)
    if not all(part is None or isinstance(part, dict) for part in parts) or not all(
        type(value) in _PLAIN for part in parts for value in (part or {}).values()
    ):
        raise RefusedError("its pickle sets the state of a torch tensor, which could replace its numbers")


def _device(*parts: Any) -> str:
    if not all(type(part) in (str, int) for part in parts):
        raise BrokenFileError("a torch device is malformed")
    return ":".join(str(part) for part in parts)


def _layout(name: Any) -> str:
    if not isinstance(name, str):
        raise BrokenFileError("a torch layout is malformed")
    return name


def _torch_symbols() -> dict[str, Symbol]:
    builders: dict[str, Callable[..., Any]] = {
        "torch._utils._rebuild_tensor": _tensor_v2,
        "torch._utils._rebuild_tensor_v2": _tensor_v2,
        "torch._utils._rebuild_tensor_v3": _tensor_v3,
        "torch._utils._rebuild_parameter": lambda data, *_: data,
        "torch._utils._rebuild_parameter_with_state": _parameter_with_state,
        "torch._tensor._rebuild_from_type_v2": _tensor_subclass,
        "torch.nn.parameter.Parameter": lambda data, *_: data,
        "torch.Size": sequence,
        "torch.device": _device,
        "torch.serialization._get_layout": _layout,
    }
    symbols = {name: Symbol(name, build) for name, build in builders.items()}
    for name in ("torch.Tensor", "torch.nn.parameter.Buffer"):
        symbols[name] = Symbol(name)
    for name, dtype in [*zip(TORCH_DTYPES, TORCH_DTYPES, strict=True), *TORCH_STORAGES.items()]:
        symbols[f"torch.{name}"] = Symbol(f"torch.{name}", value=dtype)
    for name in ("torch.storage.UntypedStorage", "torch.UntypedStorage"):
        symbols[name] = Symbol(name, value="uint8")
    return symbols


TORCH_SYMBOLS: Mapping[str, Symbol] = {**NUMPY_SYMBOLS, **_torch_symbols()}
