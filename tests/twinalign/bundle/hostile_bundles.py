"""Bundles from an attacker: how each is made, and what the message that refuses it says."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.twinalign.bundle.forging import WITNESS, Forgery
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
    forgery.store(RECORDING, dict.fromkeys((f"t{at}" for at in range(40_001)), one))


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
    "values": b'{"case": [' + b"0," * 1_500_001 + b"0]}",
    "digits": b'{"case": ' + b"9" * 5_000 + b"}",
    "latin": b'{"case": "\xe9"}',
    "list": b"[]",
    "cut": b'{"case": ',
}

HOSTILE: dict[str, tuple[Change, str]] = {
    # Names.
    "zip slip": (added("source/../../evil.py"), "a path that leaves its folder"),
    "absolute path": (added("/tmp/evil.py"), "an absolute path"),
    "path of Windows": (added("source\\evil.py"), "an absolute path, or one of another system"),
    "drive": (added("C:/evil.py"), "an absolute path, or one of another system"),
    "device name": (added("source/NUL.py"), "the name of a device"),
    "device name with a number": (added("source/com1.x.py"), "the name of a device"),
    "trimmed name": (added("source/evil.py /x.py"), "some systems trim"),
    "empty part": (added("source//evil.py"), "empty parts"),
    "names that differ by case": (added("source/Tests/cases/tiny.py"), "some systems confuse"),
    "names that differ by width": (added("source/ｔests/cases/tiny.py"), "some systems confuse"),
    "decomposed name": (added(NFD), "composed form"),
    "bidi name": (added("source/\u202eyp.elif.py"), "control or invisible characters"),
    "invisible name": (added("source/ev\u200bil.py"), "control or invisible characters"),
    "name that steers a terminal": (added("source/\x1b[2Jevil.py"), "control or invisible characters"),
    "name of many letters": (added("source/" + "a" * 300 + ".py"), "characters long"),
    "program": (added("source/evil.so"), "not a Python source file"),
    "unknown file": (added("result/evil.html", b"<script>alert(1)</script>"), "not a file that a bundle may hold"),
    "log of a stage that is missing": (added("result/log/train_diff.log"), "belongs to no stage of forward, data"),
    "ledger of no part": (added("result/weights/other_ledger.json", b"{}"), "belongs to no stage of forward, data"),
    "nested zip": (added("result/more.zip", nested_zip()), "not a file that a bundle may hold"),
    "folder": (appended(entry("source/folder/"), b""), "empty parts"),
    "file in a file": (added("source/tests/cases/tiny.py/evil.py"), "lies inside another member"),
    # The archive.
    "symlink": (appended(link(), b"/etc/passwd"), "is a link"),
    "bomb": (appended(entry("source/bomb.py"), b"\0" * 20_000_000, zipfile.ZIP_DEFLATED), "could expand to any size"),
    "bomb by bzip2": (appended(entry("source/bomb.py"), b"\0" * 20_000_000, zipfile.ZIP_BZIP2), "could expand"),
    "member twice": (appended(entry(SUMMARY), b"{}"), "occurs twice"),
    "manifest twice": (appended(entry("manifest.json"), b"{}"), "occurs twice"),
    "own date": (appended(dated(), b""), "attributes, a date or a comment"),
    "comment of a member": (appended(commented(), b""), "attributes, a date or a comment"),
    "extra field": (appended(extended(), b""), "has an extra field"),
    "hidden field": (bytewise(hidden_field), "has an extra field"),
    "comment": (zipped(lambda archive, _: setattr(archive, "comment", b"<script>")), "does not end like a zip archive"),
    "manifest last": (
        zipped(lambda archive, f: archive.writestr(entry(SUMMARY), f.members[SUMMARY]), last=False),
        "its first member is not manifest.json",
    ),
    "encrypted": (patched_entry(8, "<H", lambda flags: flags | 1), "is encrypted"),
    "lied size": (patched_entry(24, "<L", lambda size: size + 1), "has two sizes"),
    "size beyond the end": (
        patched_entry(20, "<Q", lambda _: 0x7FFFFFFF7FFFFFFF),
        "header that differs from the directory",
    ),
    "wrong CRC": (patched_entry(16, "<L", lambda crc: crc ^ 1, local=14), "its checksum (CRC)"),
    "two CRCs": (patched_entry(16, "<L", lambda crc: crc ^ 1), "header that differs from the directory"),
    "overlapping members": (bytewise(overlapping), "overlaps another member"),
    "bytes before": (bytewise(lambda data: b"#!/bin/sh\n" + data), "not laid out"),
    "bytes behind": (bytewise(lambda data: data + b"more"), "does not end like a zip archive"),
    "bytes between": (bytewise(with_gap), "9 bytes between its last member and its directory"),
    "cut short": (bytewise(lambda data: data[: len(data) // 2]), "does not end like a zip archive"),
    "cut at the end": (bytewise(lambda data: data[:-1]), "does not end like a zip archive"),
    "empty": (bytewise(lambda data: b""), "empty or cut short"),
    "no zip": (bytewise(lambda data: b"hello " * 100), "does not end like a zip archive"),
    "no members": (bytewise(lambda data: b"PK\x05\x06" + b"\0" * 18), "its first member is not manifest.json"),
    "a million members announced": (patched_end(10, "<H", lambda _: 65535), "several parts"),
    "large files announced": (patched_end(16, "<L", lambda _: 0xFFFFFFFF), "for large files, which is missing"),
    "directory moved": (patched_end(16, "<L", lambda at: at - 100), "its directory does not end where it should"),
    "bit flipped": (bytewise(flipped), "is damaged"),
    # The manifest.
    "no manifest": (only(source__py=b""), "not a file that a bundle may hold"),
    "a file that is not listed": (unlisted(lambda f: f.members.update({"source/x.py": b""})), "is not in its manifest"),
    "a listed file missing": (unlisted(lambda f: f.members.pop("result/log/recorder_ref.log")), "but missing"),
    "a file exchanged": (
        unlisted(lambda f: f.members.update({RECORDING: f.members["result/forward_ref.npy"]})),
        "is not the file that the manifest lists",
    ),
    "a recording missing": (written(lambda f: f.members.pop(RECORDING)), "forward_paddle.npy is missing"),
    "metadata missing": (written(lambda f: f.members.pop(METADATA)), "forward_paddle.json is missing"),
    "a stage hidden": (with_json(SUMMARY, lambda s: s["stages"].pop("forward")), "forward is only in the manifest"),
    "unknown version": (with_json("manifest.json", lambda m: m.update(version=9)), "version is not as manifest.schema"),
    # JSON.
    "JSON nested deeply": (replaced(SUMMARY, JSON_TEXT["deep"]), "nested too deeply"),
    "NaN in JSON": (replaced(SUMMARY, JSON_TEXT["nan"]), "NaN is not a JSON number"),
    "a key twice": (replaced(SUMMARY, JSON_TEXT["twice"]), "the key 'case' twice"),
    "millions of values": (replaced(SUMMARY, JSON_TEXT["values"]), "more than 1500000 values"),
    "a number without end": (replaced(SUMMARY, JSON_TEXT["digits"]), "not JSON"),
    "JSON in Latin-1": (replaced(SUMMARY, JSON_TEXT["latin"]), "not UTF-8"),
    "a list for an object": (replaced(SUMMARY, JSON_TEXT["list"]), "a JSON object is expected"),
    "a number for a summary": (replaced(SUMMARY, b"5"), "a JSON object is expected, not a int"),
    "a number for a manifest": (
        unlisted(lambda f: f.members.update({"manifest.json": b"5"})),
        "a JSON object is expected",
    ),
    "nothing for a ledger": (replaced("result/weights/tiny_moco_ledger.json", b"null"), "not a NoneType"),
    "a text for metadata": (replaced(METADATA, b'"5"'), "a JSON object is expected, not a str"),
    "an odd version in the directory": (patched_entry(6, "<H", lambda version: version ^ 1), "has unusual attributes"),
    "an odd version in a header": (
        bytewise(lambda d: d[: (at := d.rfind(b"PK\x03\x04")) + 4] + b"\x63" + d[at + 5 :]),
        "has a header that differs from the directory",
    ),
    "bytes behind a recording": (
        written(lambda f: f.members.update({RECORDING: f.members[RECORDING] + b"hidden"})),
        "6 bytes at its end belong to nothing",
    ),
    "JSON cut short": (replaced(SUMMARY, JSON_TEXT["cut"]), "not JSON"),
    "a number beyond all numbers": (
        written(lambda f: f.members.update({METADATA: f.members[METADATA].replace(b'"seed": 0', b'"seed": 1e999')})),
        "1e999 is larger than a float can be",
    ),
    "a whole number beyond all": (with_json(METADATA, lambda m: m.update(seconds=10**400)), "a number of 401 digits"),
    "JSON nested less deeply": (with_json(METADATA, lambda m: m["environment"].update(flags=deep(99))), "too deeply"),
    "text for a number": (with_json(METADATA, lambda m: m.update(seconds="fast")), "seconds is not as recording"),
    "a stage that is none": (with_json(METADATA, lambda m: m.update(stage="\x1b[2J")), "stage is not as recording"),
    "a convention that is none": (
        with_json("result/case.json", lambda c: c["description"].update(accept=["\x1b[2J"])),
        "known conventions are",
    ),
    # Recordings.
    "pickle that executes": (pickled({"q1": Execute()}), "its pickle asks for builtins.exec"),
    "pickle that makes a folder": (pickled({"q1": MakeFolder()}), "its pickle asks for posix.mkdir"),
    "pickle that spawns": (pickled({"q1": Spawn()}), "its pickle asks for subprocess.call"),
    "pickle that evaluates": (pickled({"q1": Evaluate()}), "its pickle calls eval; nothing was run"),
    "pickle without numpy's header": (replaced(RECORDING, pickle.dumps(Execute())), "not even a numpy header"),
    "zip for a recording": (replaced(RECORDING, nested_zip()), "not even a numpy header"),
    "a million names": (written(many_keys), "its pickle takes more than 1280000 steps"),
    "too many tensors": (written(many_tensors), "40001 tensors, limit 40000"),
    "a shape beyond memory": (written(huge_shape), "it is cut short"),
    "a pickle that copies": (written(copies), "copies what it has again and again"),
    "a long name of many": (written(names_in_a_long_name), "its names unfold to more than"),
    "extended precision": (pickled({"q1": np.zeros(2, "longdouble")}), "which no framework has"),
    "no numbers": (pickled({"q1": np.array(["text"])}), "which are not numbers"),
}
SLOW = {"a million names"}
