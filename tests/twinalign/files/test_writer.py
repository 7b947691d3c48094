"""The writer against the real reprod_log."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from twinalign.errors import InputError
from twinalign.files.reader import read_arrays
from twinalign.files.writer import write_reprod_log

CASES = {
    "floats": {"logits": np.linspace(0, 1, 12, dtype="f4").reshape(3, 4), "loss": np.array(1.5)},
    "integers": {"labels": np.arange(5), "mask": np.array([True, False]), "bytes": np.arange(256, dtype="u1")},
    "fortran": {"weight": np.asfortranarray(np.arange(6.0).reshape(2, 3))},
    "sliced": {"weight": np.arange(24.0).reshape(4, 6)[::2, 1::2]},
    "half": {"a": np.ones(3, "f2"), "b": np.ones(3, ml_dtypes.bfloat16)},
    "complex": {"spectrum": np.ones(3, "c8")},
    "empty": {"nothing": np.zeros((0, 4), "f4")},
    "no arrays": {},
    "one array twice": (lambda array: {"a": array, "b": array})(np.ones(3)),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_of_reprod_log(name: str, tmp_path: Path) -> None:
    from reprod_log import ReprodLogger

    logger = ReprodLogger()
    for key, array in CASES[name].items():
        logger.add(key, array)
    logger.save(str(tmp_path / "theirs.npy"))
    write_reprod_log(tmp_path / "ours.npy", CASES[name])
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()


def test_suffix_and_folder_are_made_as_reprod_log_does(tmp_path: Path) -> None:
    write_reprod_log(tmp_path / "new" / "forward_ref", {"a": np.ones(2)})
    assert (tmp_path / "new" / "forward_ref.npy").is_file()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "forward_ref.npy"
    write_reprod_log(target, {"a": np.ones(2)})
    with pytest.raises(TypeError, match="'b': a recording maps names to numpy arrays, got list"):
        write_reprod_log(target, {"b": [1.0]})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == [target]
    assert list(read_arrays(target)) == ["a"]


def test_a_write_that_breaks_midway_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "forward_ref.npy"
    write_reprod_log(target, {"a": np.ones(2)})

    def half_written(stream: object, value: object) -> None:
        stream.write(b"\x93NUMPY")  # type: ignore[attr-defined]
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", half_written)
    with pytest.raises(InputError) as caught:
        write_reprod_log(target, {"b": np.ones(2)})
    assert str(caught.value) == f"{target}: the disk is full; nothing was written; free some space and repeat"
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [target]
    assert list(read_arrays(target)) == ["a"]


_IMPORTED = """
import sys
import {module}
loaded = {{name.split(".")[0] for name in sys.modules}}
print(",".join(sorted(loaded & {{"torch", "paddle", "reprod_log", "ml_dtypes", "rich"}})))
"""


def _imports_of(statement: str) -> str:
    script = _IMPORTED.format(module=statement)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_the_writer_needs_numpy_alone() -> None:
    assert _imports_of("twinalign.files.writer") == ""


def test_the_check_of_imports_can_fail() -> None:
    assert "ml_dtypes" in _imports_of("ml_dtypes")
