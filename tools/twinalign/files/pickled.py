"""Pickle files: paddle.save's, and torch.save's old format."""

import struct
from typing import Any

import numpy as np

from plain_pickles.dtypes import checked_shape, numpy_dtype
from plain_pickles.errors import BrokenFileError, RefusedError
from plain_pickles.machine import PickleMachine, Symbol
from plain_pickles.reading import settle
from plain_pickles.symbols import NUMPY_SYMBOLS
from twinalign.files.symbols import TORCH_SYMBOLS, Storage

_TORCH_MAGIC = 0x1950A86A20F9469CFC6C

_PADDLE_NAME_TABLE = "StructuredToParameterName@@"
_PADDLE_SLICES = "UnpackBigParamInfor@@"


def read_pickle_file(buffer: memoryview) -> Any:
    """The tree in a pickle file: paddle.save's, or torch.save's before torch 1.6."""
    machine = PickleMachine(buffer, NUMPY_SYMBOLS)
    first = machine.load()
    if first == _TORCH_MAGIC and isinstance(first, int):
        return _read_torch_legacy(buffer, machine.position)
    machine.require_end()
    return _as_paddle(settle(first), len(buffer))


def _as_paddle(value: Any, size: int, seen: dict[int, Any] | None = None) -> Any:
    """Undo paddle.save's encoding: bfloat16 as uint16, a tensor inside a container as (name, array)."""
    seen = {} if seen is None else seen
    if id(value) in seen:  # shared lists stay shared: unfolding them here could take for ever
        return seen[id(value)]
    meant: Any = value
    if isinstance(value, np.ndarray):
        # paddle has no uint16 tensors; paddle.load makes the same of them.
        meant = value.view(numpy_dtype("bfloat16")) if value.dtype == np.uint16 else value
    elif isinstance(value, dict):
        joined = {key: item for key, item in _join_slices(value, size).items() if key != _PADDLE_NAME_TABLE}
        meant = {key: _as_paddle(item, size, seen) for key, item in joined.items()}
    elif _is_named_array(value):
        meant = _as_paddle(value[1], size, seen)
    elif isinstance(value, list | tuple):
        meant = [_as_paddle(item, size, seen) for item in value]
    seen[id(value)] = meant
    return meant


def _is_named_array(value: Any) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and isinstance(value[0], str) and isinstance(value[1], np.ndarray)


def _join_slices(tree: dict[Any, Any], size: int) -> dict[Any, Any]:
    # paddle.save with protocols 2 and 3 cuts tensors over a gigabyte into pieces and says how to join them.
    joints = tree.get(_PADDLE_SLICES)
    if joints is None:
        return tree
    tree = dict(tree)
    del tree[_PADDLE_SLICES]
    try:
        for key, joint in joints.items():
            pieces = [tree.pop(name) for name in joint["slices"]]
            if key in tree or not all(isinstance(piece, np.ndarray) for piece in pieces):
                raise ValueError("another value in its place")
            if sum(piece.nbytes for piece in pieces) > size:
                raise ValueError("pieces that share their bytes")
            tree[key] = np.concatenate(pieces).reshape(checked_shape(tuple(joint["OriginShape"])))
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
            raise BrokenFileError("it holds views of storages, as written by torch before 0.4; save it again")
        if type(key) not in (str, int):
            raise BrokenFileError("a reference to a torch storage is malformed")
        found = storages.setdefault(str(key), storage_of(kind, count))
        if found.count != count or found.dtype != kind.value:
            raise BrokenFileError("two references to one torch storage disagree")
        return found

    machine = PickleMachine(buffer, TORCH_SYMBOLS, position, load_persistent)
    version, _ = machine.load(), machine.load()
    if version != 1001:
        raise BrokenFileError(f"it is of torch's file version {version}; 1001 is known")
    tree = machine.load()
    keys = machine.load()
    position = machine.position
    if not isinstance(keys, list) or not all(type(key) in (str, int) and str(key) in storages for key in keys):
        raise BrokenFileError("its list of storages is malformed")
    for key in keys:
        storage = storages[str(key)]
        if position + 8 > len(buffer):
            raise BrokenFileError("it is cut short: storages are missing")
        (count,) = struct.unpack("<q", buffer[position : position + 8])
        end = position + 8 + count * numpy_dtype(storage.dtype).itemsize
        if count < 0 or end > len(buffer):
            raise BrokenFileError(f"it is cut short: storage {key} needs {end} bytes and {len(buffer)} are there")
        if storage.data is not None or count != storage.count:
            raise BrokenFileError(f"storage {key} is there twice, or has two sizes")
        storage.data = buffer[position + 8 : end]
        position = end
    if position != len(buffer):
        raise RefusedError(f"{len(buffer) - position} bytes at its end belong to nothing")
    return settle(tree)


def storage_of(kind: Any, count: Any) -> Storage:
    """A storage without its bytes, from torch's persistent id."""
    if not isinstance(kind, Symbol) or not isinstance(kind.value, str) or type(count) is not int or count < 0:
        raise BrokenFileError("a reference to a torch storage is malformed")
    return Storage(kind.value, count)
