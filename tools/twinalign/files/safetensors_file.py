"""The safetensors format (https://github.com/huggingface/safetensors, README, "Format"), read in place."""

import json
import struct
from typing import Any

import numpy as np

from plain_pickles.dtypes import array_over, numpy_dtype
from plain_pickles.errors import BrokenFileError
from twinalign.files.dtypes import SAFETENSORS_DTYPES
from twinalign.files.strict_json import VALUE_LIMIT, count_values

_MAXIMUM_HEADER = 100_000_000  # the format's own limit


def looks_like_safetensors(buffer: memoryview) -> bool:
    """Whether the file starts with a length that fits into it and an opening brace."""
    return len(buffer) >= 10 and 2 <= struct.unpack("<Q", buffer[:8])[0] <= len(buffer) - 8 and buffer[8] == 0x7B


def read_safetensors(buffer: memoryview) -> dict[str, np.ndarray]:
    """name -> array over the file's bytes.

    Raises:
        BrokenFileError: a header that violates the format; gaps and overlaps are refused, as by the format's own
            reader.
    """
    (length,) = struct.unpack("<Q", buffer[:8])
    if length > _MAXIMUM_HEADER:
        raise BrokenFileError(f"its safetensors header claims {length} bytes")
    text = bytes(buffer[8 : 8 + length])
    if count_values(text) > VALUE_LIMIT:
        raise BrokenFileError(f"its safetensors header has more than {VALUE_LIMIT} values")
    try:
        header = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise BrokenFileError(f"its safetensors header is malformed: {error}") from error
    data = buffer[8 + length :]
    header.pop("__metadata__", None)
    expected = 0
    arrays = {}
    for name, entry in sorted(header.items(), key=_offset):
        begin, end = entry["data_offsets"]
        if begin != expected or end < begin or end > len(data):
            raise BrokenFileError(f"{name[:80]!r} lies at bytes {begin} to {end} of {len(data)}, {expected} expected")
        code, shape = entry.get("dtype"), entry.get("shape")
        if not isinstance(code, str) or code not in SAFETENSORS_DTYPES or not isinstance(shape, list):
            known = f"the type {code[:40]!r}" if isinstance(code, str) else "no type"
            raise BrokenFileError(f"{name[:80]!r} has {known}, or no shape")
        arrays[name] = array_over(data[begin:end], numpy_dtype(SAFETENSORS_DTYPES[code]), tuple(shape))
        expected = end
    if expected != len(data):
        raise BrokenFileError(f"{len(data) - expected} bytes at its end belong to no tensor")
    return {name: arrays[name] for name in header}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _offset(item: tuple[str, Any]) -> tuple[int, int]:
    name, entry = item
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        raise BrokenFileError(f"{name[:80]!r} has no valid offsets in the file")
    return offsets[0], offsets[1]
