"""What bundles from an attacker are made of."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.bundle.forging import WITNESS, Forgery
from twinalign.bundle.archive import write_archive

RECORDING = "result/forward_paddle.npy"
METADATA = "result/forward_paddle.json"
SUMMARY = "result/summary.json"
TIME = (1980, 1, 1, 0, 0, 0)
MODE = 0o100644 << 16


class Execute:
    def __reduce__(self) -> tuple[object, ...]:
        return exec, (f"import os; os.mkdir({WITNESS!r})",)


class MakeFolder:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (WITNESS,)


class Spawn:
    def __reduce__(self) -> tuple[object, ...]:
        return subprocess.call, (["mkdir", WITNESS],)


class Evaluate:
    """The shape in which paddle writes a tensor, with code where the name stands."""

    def __reduce__(self) -> tuple[object, ...]:
        return eval, (f"__import__('os').mkdir({WITNESS!r})", {"data": 1})


def entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, TIME)
    info.create_system, info.external_attr = 3, MODE
    return info


Change = Callable[[Forgery, Path], None]


def written(change: Callable[[Forgery], Any]) -> Change:
    """A member altered, the manifest made to fit, the archive as `pack` lays it out."""

    def write(forgery: Forgery, path: Path) -> None:
        change(forgery)
        forgery.write(path)

    return write


def unlisted(change: Callable[[Forgery], Any]) -> Change:
    """A member altered and the manifest left as it was."""

    def write(forgery: Forgery, path: Path) -> None:
        change(forgery)
        write_archive(path, forgery.members)

    return write


def added(name: str, content: bytes = b"print('hello')\n") -> Change:
    return written(lambda forgery: forgery.members.update({name: content}))


def zipped(change: Callable[[zipfile.ZipFile, Forgery], Any], last: bool = True) -> Change:
    """Members written with Python's zipfile, and something done to the archive before or after them."""

    def write(forgery: Forgery, path: Path) -> None:
        forgery.renew_manifest()
        with zipfile.ZipFile(path, "w") as archive:
            if not last:
                change(archive, forgery)
            for name in sorted(forgery.members, key=lambda name: (name != "manifest.json", name)):
                if name not in archive.namelist():
                    archive.writestr(entry(name), forgery.members[name])
            if last:
                change(archive, forgery)

    return write


def bytewise(change: Callable[[bytearray], bytearray | bytes]) -> Change:
    """The bytes of an honest bundle, altered."""

    def write(forgery: Forgery, path: Path) -> None:
        forgery.write(path)
        path.write_bytes(change(bytearray(path.read_bytes())))

    return write


def replaced(name: str, content: bytes) -> Change:
    return written(lambda forgery: forgery.members.update({name: content}))


def with_json(name: str, change: Callable[[Any], Any]) -> Change:
    return written(lambda forgery: forgery.edit(name, change))


def pickled(value: object) -> Change:
    return written(lambda forgery: forgery.store(RECORDING, np.array(value, dtype=object)))


def appended(info: zipfile.ZipInfo, content: bytes, method: int = zipfile.ZIP_STORED) -> Change:
    return zipped(lambda archive, _: archive.writestr(info, content, method))


def link() -> zipfile.ZipInfo:
    info = entry("source/passwords.py")
    info.external_attr = 0o120777 << 16
    return info


def dated() -> zipfile.ZipInfo:
    info = entry("source/dated.py")
    info.date_time = (2020, 1, 1, 0, 0, 0)
    return info


def commented() -> zipfile.ZipInfo:
    info = entry("source/commented.py")
    info.comment = b"<script>"
    return info


def extended() -> zipfile.ZipInfo:
    info = entry("source/extended.py")
    info.extra = struct.pack("<2HBL", 0x7075, 12, 1, 0) + b"evil.py"
    return info


def end_of(data: bytearray) -> int:
    return len(data) - 22


def patched_end(offset: int, layout: str, change: Callable[[int], int]) -> Change:
    def patch(data: bytearray) -> bytearray:
        (value,) = struct.unpack_from(layout, data, end_of(data) + offset)
        struct.pack_into(layout, data, end_of(data) + offset, change(value))
        return data

    return bytewise(patch)


def patched_entry(offset: int, layout: str, change: Callable[[int], int], local: int | None = None) -> Change:
    """One field of the last entry of the directory, and of its local header where `local` says at which offset."""

    def patch(data: bytearray) -> bytearray:
        at = data.rfind(b"PK\x01\x02")
        (value,) = struct.unpack_from(layout, data, at + offset)
        struct.pack_into(layout, data, at + offset, change(value))
        if local is not None:
            struct.pack_into(layout, data, data.rfind(b"PK\x03\x04") + local, change(value))
        return data

    return bytewise(patch)


def overlapping(data: bytearray) -> bytearray:
    """The last entry points at the header of the one before it."""
    last = data.rfind(b"PK\x01\x02")
    previous = data.rfind(b"PK\x01\x02", 0, last)
    data[last + 42 : last + 46] = data[previous + 42 : previous + 46]
    return data


def hidden_field(data: bytearray) -> bytearray:
    """Bytes where a member beyond 2 GiB has its sizes, which nothing reads of a smaller one."""
    at = data.rfind(b"PK\x01\x02")
    behind = at + 46 + struct.unpack_from("<H", data, at + 28)[0]
    struct.pack_into("<H", data, at + 30, 28)
    struct.pack_into("<L", data, end_of(data) + 12, struct.unpack_from("<L", data, end_of(data) + 12)[0] + 28)
    data[behind:behind] = struct.pack("<2H", 1, 24) + b"s" * 24
    return data


def flipped(data: bytearray) -> bytearray:
    """One bit of a recording; its checksums stay."""
    data[data.index(b"\x93NUMPY") + 5000] ^= 1
    return data


def with_gap(data: bytearray) -> bytes:
    directory = struct.unpack_from("<L", data, end_of(data) + 16)[0]
    struct.pack_into("<L", data, end_of(data) + 16, directory + 9)
    return bytes(data[:directory]) + b"smuggled!" + bytes(data[directory:])


def many_keys(forgery: Forgery) -> None:
    """A pickled dictionary of a million names, in the header of a real one."""
    names = b"".join(b"X\x07\x00\x00\x00%07dK\x01" % at for at in range(1_000_001))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": ()})
    forgery.members[RECORDING] = header.getvalue() + b"\x80\x02}(" + names + b"u."


def many_tensors(forgery: Forgery) -> None:
    one = np.zeros(1, np.float32)
    forgery.store(RECORDING, dict.fromkeys((f"t{at}" for at in range(100_001)), one))


def huge_shape(forgery: Forgery) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 2**20)})
    forgery.members[RECORDING] = header.getvalue()


def deep(levels: int) -> dict[str, Any]:
    return {"in": deep(levels - 1)} if levels else {}


def copies(forgery: Forgery) -> None:
    """A pickle that has a million letters encoded again and again."""
    encode = b"\x8c\x07_codecs\x8c\x06encode\x93\x94" + b"X" + struct.pack("<I", 1_000_000) + b"a" * 1_000_000 + b"\x94"
    recording(forgery, encode + b"\x8c\x06latin1\x94](" + b"h\x00h\x01h\x02\x86R" * 5 + b"e.")


def recording(forgery: Forgery, pickled: bytes) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": ()})
    forgery.members[RECORDING] = header.getvalue() + b"\x80\x04" + pickled


def names_in_a_long_name(forgery: Forgery) -> None:
    forgery.store(RECORDING, {"a" * (1 << 20): {f"{at}": np.zeros(1, np.float32) for at in range(65)}})


def nested_zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"\0" * 10_000_000)
    return stream.getvalue()


def only(**members: bytes) -> Change:
    return lambda _, path: write_archive(path, {name.replace("__", "."): text for name, text in members.items()})


NFD = unicodedata.normalize("NFD", "source/é.py")
JSON_TEXT = {
    "deep": b'{"case": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "nan": b'{"case": NaN}',
    "twice": b'{"case": "a", "case": "b"}',
    "values": b'{"case": [' + b"0," * 4_000_001 + b"0]}",
    "digits": b'{"case": ' + b"9" * 5_000 + b"}",
    "latin": b'{"case": "\xe9"}',
    "list": b"[]",
    "cut": b'{"case": ',
}
