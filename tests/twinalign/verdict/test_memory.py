"""Files larger than memory: what a comparison allocates does not grow with them."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from twinalign.verdict import compare_files

COUNT = 6_000_000
LIMIT = 16 * 2**20


def peak_of(*arguments: Path, **options: Path) -> int:
    tracemalloc.start()
    try:
        compare_files(*arguments, **options)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
@pytest.mark.parametrize("fortran", [False, True], ids=["C", "F"])
def test_two_files(dtype: str, fortran: bool, tmp_path: Path) -> None:
    array = np.arange(COUNT).reshape(2000, -1).astype(dtype)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.asfortranarray(array) if fortran else array)
    assert array.nbytes > LIMIT / 2
    assert peak_of(tmp_path / "a.npy", tmp_path / "b.npy") < LIMIT


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_two_files_that_differ(dtype: str, tmp_path: Path) -> None:
    """Their tolerances follow from the size of the reference, which is measured without a copy of it."""
    array = np.random.default_rng(0).standard_normal(COUNT, "f4")
    for name, scale in (("a", 1e-4), ("b", 1e-4 * (1 + 1e-7))):
        np.save(tmp_path / f"{name}.npy", array.astype(dtype) * np.array(scale, dtype))
    assert peak_of(tmp_path / "a.npy", tmp_path / "b.npy") < LIMIT


def test_with_float64_partners(tmp_path: Path) -> None:
    truth = np.random.default_rng(0).standard_normal(COUNT)
    for name, dtype in (("a", "f4"), ("b", "f4"), ("a64", "f8"), ("b64", "f8")):
        np.save(tmp_path / f"{name}.npy", truth.astype(dtype))
    partners = {"reference64": tmp_path / "a64.npy", "reproduced64": tmp_path / "b64.npy"}
    assert peak_of(tmp_path / "a.npy", tmp_path / "b.npy", **partners) < LIMIT


def test_the_limit_can_be_passed(tmp_path: Path) -> None:
    tracemalloc.start()
    np.zeros(COUNT)
    assert tracemalloc.get_traced_memory()[1] > LIMIT
    tracemalloc.stop()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read on Linux")
def test_memory_of_mapped_files_is_given_back(tmp_path: Path) -> None:
    """The peak of a process of its own, in which pages of files count, against what the files hold."""
    array = np.random.default_rng(0).standard_normal(5 * COUNT, "f4")
    np.save(tmp_path / "a.npy", array)
    np.save(tmp_path / "b.npy", array * np.float32(1 + 1e-7))
    few = np.ones(4, "f4")
    np.save(tmp_path / "few.npy", few)

    def peak(*names: str) -> int:
        code = (
            "import sys; from pathlib import Path; from twinalign.verdict import compare_files;"
            "compare_files(*sys.argv[1:]); print(Path('/proc/self/status').read_text())"
        )
        paths = [str(tmp_path / f"{name}.npy") for name in names]
        status = subprocess.run([sys.executable, "-c", code, *paths], check=True, capture_output=True, text=True).stdout
        return 1024 * int(status.split("VmHWM:")[1].split()[0])

    assert peak("a", "b") - peak("few", "few") < array.nbytes / 2
