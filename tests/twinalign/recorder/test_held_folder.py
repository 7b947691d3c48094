"""One process at a time writes to an output folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from twinalign.errors import InputError
from twinalign.recorder.held_folder import held_folder

HOLD = """
import sys
from pathlib import Path
from twinalign.recorder.held_folder import held_folder
with held_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        said = rf"^--out {folder}: held by process {holder.pid} on \S+ \(.*\), since [-0-9]+ [:0-9]+; wait for its end"
        with pytest.raises(InputError, match=said), held_folder(folder):
            pass
        holder.kill()
    (folder / "weights").mkdir()
    (folder / "weights" / f".a.npz.{holder.pid}.part").write_bytes(b"half")
    with held_folder(folder), held_folder(folder):  # who was killed holds nothing
        assert sorted(path.name for path in folder.rglob("*")) == [".twinalign-lock", "weights"]
        assert str(os.getpid()) in (folder / ".twinalign-lock").read_text()
    assert [path.name for path in folder.rglob("*")] == ["weights"]
