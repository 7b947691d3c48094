"""Bundles from an attacker: each is refused in one line, and nothing of them is executed."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.twinalign.bundle.forging import WITNESS, Forgery
from tests.twinalign.bundle.hostile_bundles import (
    HOSTILE,
    SLOW,
    SUMMARY,
    Evaluate,
    Execute,
    MakeFolder,
    Spawn,
)
from twinalign.bundle import layout
from twinalign.bundle.layout import TEXT_LIMIT
from twinalign.bundle.verifying import verify_bundle
from twinalign.errors import InputError
from twinalign.files.strict_json import check_sizes
from twinalign.files.text import shown
from twinalign.terminal.verification import verification_lines


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in HOSTILE])
def test_hostile_bundle_is_refused(name: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write, expected = HOSTILE[name]
    path = tmp_path / "hostile.zip"
    write(Forgery(bundle), path)
    before = {file.name for file in tmp_path.iterdir()}
    with pytest.raises(InputError) as caught:
        verify_bundle(path)
    message = str(caught.value)
    assert expected in message
    assert message.isprintable(), ascii(message)
    assert len(message) < 1500
    assert {file.name for file in tmp_path.iterdir()} == before


def test_a_bundle_that_is_refused_after_some_stages_is_so_in_one_line(bundle: Path, tmp_path: Path) -> None:
    forgery = Forgery(bundle)
    forgery.members[layout.recording_member("paddle", "backward", "float32")] = pickle.dumps(Execute())
    command = [sys.executable, "-m", "twinalign", "verify", str(forgery.write(tmp_path / "hostile.zip"))]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert len(finished.stderr.splitlines()) == 1, finished.stderr


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
    lines = list(verification_lines(result.to_json()))
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
    with pytest.raises(InputError, match=r"loss_diff\.log: 33554433 bytes of text, limit 33554432"):
        verify_bundle(forgery.write(tmp_path / "long.zip"))


def test_a_pickle_of_a_recording_has_few_steps(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "STEP_LIMIT", 9)  # each step is one byte of a file and up to a hundred of memory
    with pytest.raises(InputError, match="its pickle takes more than 9 steps"):
        verify_bundle(bundle)


@pytest.mark.parametrize("text", [b"[" * 750_001, b" " * (1 << 25) + b"  "])
def test_json_files_are_limited_together(text: bytes) -> None:
    check_sizes({"a.json": text}, "b.zip")
    with pytest.raises(InputError, match=r"b\.zip: c\.json: more than"):
        check_sizes({"a.json": text, "c.json": text}, "b.zip")
