"""Bundles from an attacker: each is refused in one line, and nothing of them is executed."""

from __future__ import annotations

import json
import os
import pickle
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.bundle.forging import WITNESS, Forgery
from tests.bundle.hostile_parts import (
    JSON_TEXT,
    METADATA,
    NFD,
    RECORDING,
    SUMMARY,
    Change,
    Evaluate,
    Execute,
    MakeFolder,
    Spawn,
    added,
    appended,
    bytewise,
    commented,
    copies,
    dated,
    deep,
    entry,
    extended,
    flipped,
    hidden_field,
    huge_shape,
    link,
    many_keys,
    many_tensors,
    names_in_a_long_name,
    nested_zip,
    only,
    overlapping,
    patched_end,
    patched_entry,
    pickled,
    replaced,
    unlisted,
    with_gap,
    with_json,
    written,
    zipped,
)
from twinalign.bundle import contents
from twinalign.bundle.layout import TEXT_LIMIT, shown
from twinalign.bundle.strict_json import check_sizes
from twinalign.bundle.text import text_lines
from twinalign.bundle.verifying import verify_bundle
from twinalign.errors import InputError

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
    "names that differ by case": (added("source/Tests/tiny_cases.py"), "which some systems confuse"),
    "names that differ by width": (added("source/ｔests/tiny_cases.py"), "which some systems confuse"),
    "decomposed name": (added(NFD), "composed form"),
    "bidi name": (added("source/\u202eyp.elif.py"), "control or invisible letters"),
    "invisible name": (added("source/ev\u200bil.py"), "control or invisible letters"),
    "name that steers a terminal": (added("source/\x1b[2Jevil.py"), "control or invisible letters"),
    "name of many letters": (added("source/" + "a" * 300 + ".py"), "letters long"),
    "program": (added("source/evil.so"), "no Python source"),
    "unknown file": (added("result/evil.html", b"<script>alert(1)</script>"), "nothing that a bundle holds"),
    "log of a stage that is missing": (added("result/log/train_diff.log"), "belongs to no stage of forward, data"),
    "ledger of no part": (added("result/weights/other_ledger.json", b"{}"), "belongs to no stage of forward, data"),
    "nested zip": (added("result/more.zip", nested_zip()), "nothing that a bundle holds"),
    "folder": (appended(entry("source/folder/"), b""), "empty parts"),
    "file in a file": (added("source/tests/tiny_cases.py/evil.py"), "lies in another member"),
    # The archive.
    "symlink": (appended(link(), b"/etc/passwd"), "is a link"),
    "bomb": (appended(entry("source/bomb.py"), b"\0" * 20_000_000, zipfile.ZIP_DEFLATED), "could unfold to any size"),
    "bomb by bzip2": (appended(entry("source/bomb.py"), b"\0" * 20_000_000, zipfile.ZIP_BZIP2), "could unfold"),
    "member twice": (appended(entry(SUMMARY), b"{}"), "is there twice"),
    "manifest twice": (appended(entry("manifest.json"), b"{}"), "is there twice"),
    "own date": (appended(dated(), b""), "attributes, a date or a comment"),
    "comment of a member": (appended(commented(), b""), "attributes, a date or a comment"),
    "extra field": (appended(extended(), b""), "has a field of its own"),
    "hidden field": (bytewise(hidden_field), "has a field of its own"),
    "comment": (zipped(lambda archive, _: setattr(archive, "comment", b"<script>")), "no end of a zip archive"),
    "manifest last": (
        zipped(lambda archive, f: archive.writestr(entry(SUMMARY), f.members[SUMMARY]), last=False),
        "its first member is not manifest.json",
    ),
    "encrypted": (patched_entry(8, "<H", lambda flags: flags | 1), "is encrypted"),
    "lied size": (patched_entry(24, "<L", lambda size: size + 1), "has two sizes"),
    "size beyond the end": (patched_entry(20, "<Q", lambda _: 0x7FFFFFFF7FFFFFFF), "described in two ways"),
    "wrong CRC": (patched_entry(16, "<L", lambda crc: crc ^ 1, local=14), "its checksum (CRC)"),
    "two CRCs": (patched_entry(16, "<L", lambda crc: crc ^ 1), "is described in two ways"),
    "overlapping members": (bytewise(overlapping), "overlaps another member"),
    "bytes before": (bytewise(lambda data: b"#!/bin/sh\n" + data), "not laid out"),
    "bytes behind": (bytewise(lambda data: data + b"more"), "no end of a zip archive at its end"),
    "bytes between": (bytewise(with_gap), "9 bytes between its last member and its directory"),
    "cut short": (bytewise(lambda data: data[: len(data) // 2]), "no end of a zip archive"),
    "cut at the end": (bytewise(lambda data: data[:-1]), "no end of a zip archive"),
    "empty": (bytewise(lambda data: b""), "empty or cut short"),
    "no zip": (bytewise(lambda data: b"hello " * 100), "no end of a zip archive"),
    "no members": (bytewise(lambda data: b"PK\x05\x06" + b"\0" * 18), "its first member is not manifest.json"),
    "a million members announced": (patched_end(10, "<H", lambda _: 65535), "several parts"),
    "large files announced": (patched_end(16, "<L", lambda _: 0xFFFFFFFF), "announced and missing"),
    "directory moved": (patched_end(16, "<L", lambda at: at - 100), "its directory does not end where it should"),
    "bit flipped": (bytewise(flipped), "is damaged"),
    # The manifest.
    "no manifest": (only(source__py=b""), "nothing that a bundle holds"),
    "a file that is not listed": (unlisted(lambda f: f.members.update({"source/x.py": b""})), "is not in its manifest"),
    "a listed file missing": (unlisted(lambda f: f.members.pop("result/log/recorder_ref.log")), "and missing"),
    "a file exchanged": (
        unlisted(lambda f: f.members.update({RECORDING: f.members["result/forward_ref.npy"]})),
        "is not what the manifest has",
    ),
    "a recording missing": (written(lambda f: f.members.pop(RECORDING)), "forward_paddle.npy is missing"),
    "metadata missing": (written(lambda f: f.members.pop(METADATA)), "forward_paddle.json is missing"),
    "a stage hidden": (with_json(SUMMARY, lambda s: s["stages"].pop("forward")), "forward is in the manifest alone"),
    "unknown version": (with_json("manifest.json", lambda m: m.update(version=9)), "version is not as manifest.schema"),
    # JSON.
    "JSON nested deeply": (replaced(SUMMARY, JSON_TEXT["deep"]), "nested too deeply"),
    "NaN in JSON": (replaced(SUMMARY, JSON_TEXT["nan"]), "NaN is no number of JSON"),
    "a key twice": (replaced(SUMMARY, JSON_TEXT["twice"]), "the key 'case' twice"),
    "millions of values": (replaced(SUMMARY, JSON_TEXT["values"]), "more than 4000000 values"),
    "a number without end": (replaced(SUMMARY, JSON_TEXT["digits"]), "no JSON"),
    "JSON in Latin-1": (replaced(SUMMARY, JSON_TEXT["latin"]), "not UTF-8"),
    "a list for an object": (replaced(SUMMARY, JSON_TEXT["list"]), "a JSON object is expected"),
    "JSON cut short": (replaced(SUMMARY, JSON_TEXT["cut"]), "no JSON"),
    "a number beyond all numbers": (
        written(lambda f: f.members.update({METADATA: f.members[METADATA].replace(b'"seed": 0', b'"seed": 1e999')})),
        "1e999 is more than a number can be",
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
    "a million names": (written(many_keys), "it unfolds to more than 1000000 values"),
    "too many tensors": (written(many_tensors), "100001 tensors, more than the 100000"),
    "a shape beyond memory": (written(huge_shape), "it is cut short"),
    "a pickle that copies": (written(copies), "copies what it has again and again"),
    "a long name of many": (written(names_in_a_long_name), "its names unfold to more than"),
    "extended precision": (pickled({"q1": np.zeros(2, "longdouble")}), "which no framework has"),
    "no numbers": (pickled({"q1": np.array(["text"])}), "which are not numbers"),
}
SLOW = {"a million names"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in HOSTILE])
def test_hostile_bundle_is_refused(name: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write, expected = HOSTILE[name]
    path = tmp_path / "hostile.zip"
    write(Forgery(bundle), path)
    before = {file.name for file in tmp_path.iterdir()}
    started = time.monotonic()
    with pytest.raises(InputError) as caught:
        verify_bundle(path)
    message = str(caught.value)
    assert expected in message
    assert message.isprintable(), ascii(message)
    assert len(message) < 1500
    assert time.monotonic() - started < 30
    assert {file.name for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("value", [Execute(), MakeFolder(), Spawn(), Evaluate()])
def test_canaries_sing_where_a_pickle_is_loaded_freely(
    value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(value))
    assert Path(WITNESS).is_dir()


@pytest.mark.parametrize("name", ["sitecustomize", "numpy", "usercustomize", "conftest", "twinalign/__init__", "json"])
def test_source_is_not_executed(name: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    forgery, member = Forgery(bundle), f"source/{name}.py"
    forgery.members[member] = f"import os; os.mkdir({str(tmp_path / WITNESS)!r})\n".encode()
    forgery.edit("manifest.json", lambda manifest: manifest["source"].update({member: f"/home/me/{name}.py"}))
    result = verify_bundle(forgery.write(tmp_path / "forged.zip"))
    assert [sign.where for sign in result.signs] == [member]
    assert not (tmp_path / WITNESS).exists()


EVIL = "<script>alert(1)</script>\x1b[2J\x07\u202e\u2066\r\nforged line\u200b"


def test_names_of_tensors_are_shown_harmlessly(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)
    for side in ("ref", "paddle"):
        for folder in ("", "float64/"):
            name = f"result/{folder}forward_{side}.npy"
            forgery.change_arrays(
                name, lambda arrays, side=side: arrays.update({EVIL: np.full(9, side == "ref", "f4")})
            )
    forgery.edit(SUMMARY, lambda summary: summary["environment"]["ref"]["versions"].update(torch=EVIL))
    result = verify_bundle(forgery.write(tmp_path / "evil.zip"))
    assert result.exit_code == 1
    lines = list(text_lines(result))
    assert any("alert(1)" in line for line in lines)
    assert all(line.isprintable() for line in lines), [ascii(line) for line in lines if not line.isprintable()]
    assert json.dumps(result.to_json(), ensure_ascii=True).isprintable()


def test_shown_hides_what_steers() -> None:
    assert shown(EVIL) == "<script>alert(1)</script>?[2J?????forged line?"
    assert shown(EVIL).isprintable()
    assert shown("a" * 500) == "a" * 160 + "…"


def test_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        verify_bundle(tmp_path / "pipe")


def test_folder_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a regular file"):
        verify_bundle(tmp_path)


def test_a_text_without_end_is_refused(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)
    forgery.members["result/log/loss_diff.log"] = bytes(TEXT_LIMIT + 1)
    with pytest.raises(InputError, match=r"loss_diff\.log: 33554433 bytes of text, more than the 33554432"):
        verify_bundle(forgery.write(tmp_path / "long.zip"))


def test_a_pickle_of_a_recording_has_few_steps(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "STEP_LIMIT", 9)  # each step is one byte of a file and up to a hundred of memory
    with pytest.raises(InputError, match="its pickle takes more than 9 steps"):
        verify_bundle(bundle)


@pytest.mark.parametrize("text", [b"[" * 2_000_001, b" " * (1 << 25) + b"  "])
def test_json_files_are_limited_together(text: bytes) -> None:
    check_sizes({"a.json": text}, "b.zip")
    with pytest.raises(InputError, match=r"b\.zip: c\.json: more than"):
        check_sizes({"a.json": text, "c.json": text}, "b.zip")
