"""Pickle files: paddle.save's, torch.save's old format, and numpy's object arrays."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from twinalign.files.dtypes import numpy_dtype
from twinalign.files.errors import BrokenFileError
from twinalign.files.pickle_machine import PickleMachine, Stateful, Symbol
from twinalign.files.symbols import NUMPY_SYMBOLS, TORCH_SYMBOLS, Storage

_TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_MAXIMUM_DEPTH = 100

_PADDLE_NAME_TABLE = "StructuredToParameterName@@"
_PADDLE_SLICES = "UnpackBigParamInfor@@"


def read_object(buffer: memoryview, most_steps: float = math.inf) -> Any:
    """The tree in the one numpy pickle that `buffer` begins with; `most_steps` as `PickleMachine` has it."""
    return settle(PickleMachine(buffer, NUMPY_SYMBOLS, most_steps=most_steps).load())


def read_pickle_file(buffer: memoryview) -> Any:
    """The tree in a file that is a pickle: paddle.save's, or torch.save's before torch 1.6."""
    machine = PickleMachine(buffer, NUMPY_SYMBOLS)
    first = machine.load()
    if first == _TORCH_MAGIC and isinstance(first, int):
        return _read_torch_legacy(buffer, machine.position)
    return _as_paddle(settle(first))


def settle(value: Any, depth: int = 0, seen: dict[int, Any] | None = None) -> Any:
    """Replace arrays under construction by arrays, in plain dictionaries, lists and tuples.

    Raises:
        BrokenFileError: nesting deeper than any checkpoint (a list may contain itself).
    """
    seen = {} if seen is None else seen
    if depth > _MAXIMUM_DEPTH:
        raise BrokenFileError(f"its data is nested more than {_MAXIMUM_DEPTH} deep")
    if id(value) in seen:
        return seen[id(value)]
    settled: Any = value
    if isinstance(value, Stateful):
        settled = value.finished()
        if not isinstance(settled, np.ndarray):
            settled = settle(settled, depth + 1, seen)
    elif isinstance(value, dict):
        settled = {key: settle(item, depth + 1, seen) for key, item in value.items()}
    elif isinstance(value, list):
        settled = [settle(item, depth + 1, seen) for item in value]
    elif isinstance(value, tuple):
        settled = tuple([settle(item, depth + 1, seen) for item in value])
    elif isinstance(value, Symbol):
        settled = value.name
    elif isinstance(value, memoryview):
        settled = bytes(value)
    seen[id(value)] = settled
    return settled


def _as_paddle(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """What paddle.save meant: bfloat16 is stored as uint16, a tensor inside a container as (name, array)."""
    seen = {} if seen is None else seen
    if id(value) in seen:  # shared lists stay shared: unfolding them here could take for ever
        return seen[id(value)]
    meant: Any = value
    if isinstance(value, np.ndarray):
        # paddle has no uint16 tensors; paddle.load makes the same of them.
        meant = value.view(numpy_dtype("bfloat16")) if value.dtype == np.uint16 else value
    elif isinstance(value, dict):
        joined = {key: item for key, item in _join_slices(value).items() if key != _PADDLE_NAME_TABLE}
        meant = {key: _as_paddle(item, seen) for key, item in joined.items()}
    elif isinstance(value, tuple) and len(value) == 2 and _is_named_tensor(*value):
        meant = _as_paddle(value[1], seen)
    elif isinstance(value, list | tuple):
        meant = [_as_paddle(item, seen) for item in value]
    seen[id(value)] = meant
    return meant


def _is_named_tensor(name: Any, array: Any) -> bool:
    return isinstance(name, str) and isinstance(array, np.ndarray)


def _join_slices(tree: dict[Any, Any]) -> dict[Any, Any]:
    # paddle.save with protocols 2 and 3 cuts tensors over a gigabyte into pieces and says how to join them.
    joints = tree.get(_PADDLE_SLICES)
    if joints is None:
        return tree
    tree = dict(tree)
    del tree[_PADDLE_SLICES]
    try:
        for key, joint in joints.items():
            pieces = [tree.pop(name) for name in joint["slices"]]
            tree[key] = np.concatenate(pieces).reshape(joint["OriginShape"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BrokenFileError("the pieces of a large paddle tensor do not fit together") from error
    return tree


def _read_torch_legacy(buffer: memoryview, position: int) -> Any:
    # Magic number, protocol, system information, the object, the order of storages, then each storage: its number of
    # elements (int64) and its bytes (torch/serialization.py, _legacy_save).
    storages: dict[str, Storage] = {}

    def load_persistent(identifier: Any) -> Storage:
        if not isinstance(identifier, tuple) or len(identifier) != 6 or identifier[0] != "storage":
            raise BrokenFileError("a reference to a torch storage is malformed")
        _, kind, key, _, count, view = identifier
        if view is not None:
            raise BrokenFileError("it holds views of storages as torch before 0.4 wrote them; save it again")
        return storages.setdefault(str(key), storage_of(kind, count))

    machine = PickleMachine(buffer, TORCH_SYMBOLS, position, load_persistent)
    version, _ = machine.load(), machine.load()
    if version != 1001:
        raise BrokenFileError(f"it is of torch's file version {version}; 1001 is known")
    tree = machine.load()
    keys = machine.load()
    position = machine.position
    if not isinstance(keys, list) or not all(str(key) in storages for key in keys):
        raise BrokenFileError("its list of storages is malformed")
    for key in keys:
        storage = storages[str(key)]
        if position + 8 > len(buffer):
            raise BrokenFileError("it is cut short: storages are missing")
        (count,) = struct.unpack("<q", buffer[position : position + 8])
        end = position + 8 + count * numpy_dtype(storage.dtype).itemsize
        if count < 0 or end > len(buffer):
            raise BrokenFileError(f"it is cut short: storage {key} needs {end} bytes and {len(buffer)} are there")
        storage.data = buffer[position + 8 : end]
        position = end
    return settle(tree)


def storage_of(kind: Any, count: Any) -> Storage:
    """A storage without its bytes, from what torch's persistent id says of it."""
    if not isinstance(kind, Symbol) or not isinstance(kind.value, str) or not isinstance(count, int) or count < 0:
        raise BrokenFileError("a reference to a torch storage is malformed")
    return Storage(kind.value, count)
