"""Files of rarer forms for `mutate_files`, and changes that keep to a format: headers, members, indexes."""

from __future__ import annotations

import copy
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SHARDS = "model-*"
"""What the index of shards names; it lies beside the changed index."""
NUMBERS = (0, 1, -1, 2**31, 2**53, 2**63, 2**64, 10**30, -0.0, 1.5, 1e308)
ODD: tuple[Any, ...] = (
    *NUMBERS,
    True,
    False,
    None,
    "",
    "F32",
    "BF16",
    "F8_E4M3",
    "../a",
    "/etc/passwd",
    "\udc80",
    [],
    {},
    [[]],
)
NAMES = (
    "",
    "/",
    "..",
    "../a.npy",
    "/a.npy",
    "a",
    "a.npy/",
    "a.npy.npy",
    "a\\b.npy",
    "a\x00.npy",
    "\u202ea.npy",
    "é.npy",
    ".npy",
)


def write_odd_files(folder: Path, arrays: dict[str, Any]) -> None:
    """Honest files that people rarely have: half precisions, sharded, sparse and subclassed tensors, odd arrays."""
    import safetensors.torch
    import torch

    rng = np.random.default_rng(1)
    halves = {"a": torch.ones(3, 2, dtype=torch.bfloat16), "b": torch.ones(4, dtype=torch.float8_e4m3fn)}
    safetensors.torch.save_file(halves, folder / "half.safetensors", {"format": "pt", "note": "of two"})
    shard = {"c.weight": rng.standard_normal((3, 2)).astype("f4")}
    safetensors.numpy.save_file(shard, folder / "model-1.safetensors")
    safetensors.numpy.save_file({"d": np.arange(4)}, folder / "model-2.safetensors")
    np.save(folder / "model-3.npy", np.arange(6.0))
    places = {"c.weight": "model-1.safetensors", "d": "model-2.safetensors"}
    index = {"metadata": {"total_size": 56}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    odd = {
        "big": arrays["conv.bias"].astype(">f8"),
        "columns": np.asfortranarray(arrays["conv.weight"]),
        "empty": np.zeros((0, 3)),
        "half": arrays["conv.bias"].astype("f2"),
        "deep/name.with/é": np.arange(3),
    }
    np.savez(folder / "odd.npz", **odd)
    tensor = torch.arange(12.0).reshape(3, 4)
    found = {
        "parameter": torch.nn.Parameter(tensor.clone()),
        "view": tensor.t()[1:],
        "half": tensor.bfloat16(),
        "buffer": torch.nn.parameter.Buffer(torch.ones(2)) if hasattr(torch.nn.parameter, "Buffer") else tensor,
        "size": tensor.shape,
        "empty": torch.empty(0, 5),
    }
    torch.save(found, folder / "subclasses.pth")
    torch.save(found, folder / "subclasses-legacy.pth", _use_new_zipfile_serialization=False)


def with_odd_header(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """A .safetensors file whose header is JSON still, and has something odd in it."""
    (length,) = struct.unpack("<Q", data[:8])
    header = with_odd_value(data[8 : 8 + length], rng, other)
    claimed = len(header) + rng.choice((0, 0, 0, 0, 1, -1, 8))
    return struct.pack("<Q", max(0, claimed)) + header + data[8 + length :] + bytes(rng.choice((0, 0, 0, 1)))


def with_odd_value(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """JSON with values, keys or elements replaced, left out, doubled or added."""
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 2))):
        places = [*_places(value, [])]
        place, key = rng.choice(places) if places else (None, None)
        if place is None:
            break
        kind = rng.randrange(5)
        if kind < 3:
            place[key] = copy.deepcopy(rng.choice((*ODD, *(known[at] for known, at in places))))
        elif kind == 3:
            del place[key]
        elif isinstance(place, dict):
            place[rng.choice((*NAMES, "__metadata__", "weight_map", "dtype"))] = copy.deepcopy(rng.choice(ODD))
        else:
            place.append(copy.deepcopy(rng.choice(ODD)))
    text = json.dumps(value)
    if rng.random() < 0.2 and '", "' in text:  # a key twice, which no dictionary has
        text = text.replace('", "', rng.choice(('", "dtype": 1, "', '",, "', '", NaN, "')), 1)
    return text.encode("utf-8", "surrogatepass" if rng.random() < 0.5 else "replace")


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    for key, inner in [*value.items()] if isinstance(value, dict) else [*enumerate(value)]:
        found.append((value, key))
        if isinstance(inner, dict | list):
            _places(inner, found)
    return found


def with_odd_members(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """A zip archive with members renamed, doubled, added, or stored in other ways."""
    stream = io.BytesIO()
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(stream, "w", rng.choice(methods)) as target:
        members = [(name, archive.read(name)) for name in archive.namelist()]
        for _ in range(rng.choice((1, 1, 2))):
            at, kind = rng.randrange(len(members)), rng.randrange(6)
            name, content = members[at]
            if kind == 0:
                members[at] = (rng.choice(NAMES), content)
            elif kind == 1:
                members.insert(at, (rng.choice((*NAMES, name)), rng.choice((b"", b"text", content, other[:400]))))
            elif kind == 2:
                members[at] = (name, other)
            elif kind == 3:
                members[at] = (name, content[: rng.randrange(len(content) + 1)])
            elif kind == 4:
                members[at] = (name, _odd_npy(rng))
            elif len(members) > 1:
                del members[at]
        for name, content in members:
            entry = zipfile.ZipInfo(name or "x")
            entry.filename = name  # as written, whatever it holds
            entry.compress_type = rng.choice((target.compression, zipfile.ZIP_STORED))
            target.writestr(entry, content)
    return stream.getvalue()


def _odd_npy(rng: random.Random) -> bytes:
    """A .npy member whose header says something odd."""
    shape = rng.choice(
        ("()", "(0,)", "(3,)", "(-1,)", "(True,)", "(2**62,)", "(1,)*65", "(10**30,)", "[3]", "3", "(3.0,)")
    )
    codes = (
        "'<f8'",
        "'>c16'",
        "'|O'",
        "'|V8'",
        "'<U3'",
        "'<M8[s]'",
        "[('a', '<f8'), ('b', '|O')]",
        "'f'",
        "'<f8,<f8'",
        "7",
    )
    order = rng.choice(("True", "False", "1", "None"))
    text = f"{{'descr': {rng.choice(codes)}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text += rng.choice(("", "", "\x00", "#", " + {}"))
    header = text.encode("latin-1").ljust(118) + b"\n"
    version = rng.choice((b"\x01\x00", b"\x01\x00", b"\x09\x00"))
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + bytes(rng.choice((0, 24, 48)))


OF_FORMAT: dict[str, tuple[Callable[[bytes, random.Random, bytes], bytes], ...]] = {
    ".safetensors": (with_odd_header,) * 8,
    ".npz": (with_odd_members,) * 8,
    ".pth": (),
    ".json": (with_odd_value,) * 12,
}
"""Changes that only files of this kind are given, as often as they stand here."""
