"""The classic verdict against reprod_log 1.0.1 itself, digit for digit."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from pathlib import Path

import numpy as np
import pytest

from twinalign.verdict import classic_verdict
from twinalign.verdict.classic import classic_mean, log_lines

Arrays = dict[str, np.ndarray]


def theirs(first: Arrays, second: Arrays, folder: Path, threshold: float = 1e-6) -> list[str]:
    from reprod_log import ReprodDiffHelper

    helper = ReprodDiffHelper()
    with contextlib.redirect_stdout(io.StringIO()):
        helper.compare_info(first, second)
        helper.report(diff_threshold=threshold, path=str(folder / "diff.log"))
    logging.getLogger("root").handlers.clear()
    return (folder / "diff.log").read_text().splitlines()


def without_time(lines: list[str]) -> list[str]:
    return [re.sub(r"^\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\]", "[]", line) for line in lines]


def pair(dtype: str, shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype), rng.integers(0, 100, shape).astype(dtype)
    first = np.asarray(rng.standard_normal(shape)).astype(dtype)
    return first, np.asarray(first + rng.standard_normal(shape) * 1e-6).astype(dtype)


SHAPES = [(), (1,), (7,), (3, 5), (129,), (64, 1000), (1025, 1027)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8", "u1"])
def test_log_lines_are_reprod_logs(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    first, second = pair(dtype, shape)
    arrays = {"logits": first, "loss": first[..., None]}, {"logits": second, "loss": first[..., None]}
    found = classic_verdict(*arrays)
    assert without_time(log_lines(found)) == without_time(theirs(*arrays, tmp_path))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i4", "u1", "i8"])
@pytest.mark.parametrize("layout", ["C", "F", "mixed"])
@pytest.mark.parametrize("shape", [(1_300_001,), (1100, 1000), (300, 41, 97)], ids=str)
def test_large_arrays_in_pieces_are_numpys_to_the_bit(shape: tuple[int, ...], layout: str, dtype: str) -> None:
    first, second = pair(dtype, shape)
    if layout != "C":
        first = np.asfortranarray(first)
    if layout == "F":
        second = np.asfortranarray(second)
    difference = np.abs(first - second)
    found = classic_mean(first, second)
    if layout == "mixed":
        # numpy's own choice of a layout for the result of mixed ones is its affair; the sum is the same numbers.
        assert found == pytest.approx(difference.mean(), rel=1e-3 if dtype == "f2" else 1e-6)
    else:
        assert found == difference.mean()


def test_quirks_are_kept_and_named(tmp_path: Path) -> None:
    nan = {"a": np.array([1.0, np.nan], "f4")}, {"a": np.array([5.0, np.nan], "f4")}
    found = classic_verdict(*nan)
    assert found.passed
    assert found.quirks == ["a: the mean is NaN, which reprod_log passes"]
    assert without_time(log_lines(found)) == without_time(theirs(*nan, tmp_path))
    broadcast = {"a": np.zeros((4, 3), "f4")}, {"a": np.zeros((3,), "f4")}
    found = classic_verdict(*broadcast)
    assert found.passed
    assert found.quirks == ["a: reprod_log transposes or broadcasts (4, 3) against (3,)"]
    assert without_time(log_lines(found)) == without_time(theirs(*broadcast, tmp_path))
    transposed = {"a": np.arange(6.0).reshape(2, 3)}, {"a": np.arange(6.0).reshape(2, 3).T}
    assert without_time(log_lines(classic_verdict(*transposed))) == without_time(theirs(*transposed, tmp_path))
    wrapped = {"a": np.array([0], "u1")}, {"a": np.array([1], "u1")}
    assert "value: 255.0" in classic_verdict(*wrapped).lines[1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": np.ones(2)}, {"b": np.ones(2)}),
        ({"a": np.ones((2, 3))}, {"a": np.ones((4, 5))}),
        ({"a": np.array([True])}, {"a": np.array([False])}),
        ({"a": np.zeros(0)}, {"a": np.zeros(0)}),
    ],
    ids=["names", "shapes", "booleans", "empty"],
)
def test_where_reprod_log_stops_it_is_said(first: Arrays, second: Arrays, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ValueError, TypeError)) as caught:
        theirs(first, second, tmp_path)
    found = classic_verdict(first, second)
    assert not found.passed
    assert found.error is not None
    assert found.error.startswith(type(caught.value).__name__)


def test_threshold_is_the_callers() -> None:
    first, second = {"a": np.zeros(3)}, {"a": np.full(3, 1e-5)}
    assert not classic_verdict(first, second).passed
    assert classic_verdict(first, second, threshold=1e-4).passed
