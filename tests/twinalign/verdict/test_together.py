"""Small tensors that are measured together: each number to the bit of the tensor alone, and of numpy on it."""

from __future__ import annotations

import dataclasses
import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinalign.verdict import compare_arrays
from twinalign.verdict.cache_pieces import CHUNK, dots_of_rows, sums_of_rows
from twinalign.verdict.noise import Noise, Recordings, TensorNoise, gather, gather_all
from twinalign.verdict.statistics import measure, measure_all

DTYPES = ["f4", "f4", "f4", "f8", "f2", ml_dtypes.bfloat16, "i4", "i8", "u1", "u8", "b1", "c8", "c16"]
SHAPES = [(), (1,), (7,), (8,), (3, 5), (384,), (4095,), (64, 64), (0,), (0, 3), (8193,)]
KINDS = ["near", "same", "zeros", "negative zero", "signs", "huge", "nan", "inf", "nan on both", "fortran"]
MORE_DIGITS = {"f4": 2.0**-30, "f2": 2.0**-20}


def bits(value: Any) -> Any:
    """What differs wherever two values differ, and is equal for every NaN."""
    if dataclasses.is_dataclass(value):
        return {field.name: bits(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, float | np.floating):
        return type(value).__name__, "nan" if value != value else struct.pack("d", float(value))
    return value.tobytes() if isinstance(value, np.ndarray) else (type(value).__name__, value)


def pair(seed: int, dtype: Any, shape: tuple[int, ...], kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iub":
        first, second = (np.asarray(rng.integers(0, 2**62, shape)).astype(dtype) for _ in range(2))
        return first, first.copy() if kind == "same" else second
    numbers = np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-5, 5))
    if kind == "zeros":
        numbers = np.where(rng.random(shape) < 0.3, 0.0, numbers)
    if kind == "huge":
        numbers = numbers * 1e37
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * rng.standard_normal(shape)
    moved = np.asarray(numbers * (1 + 1e-5 * rng.standard_normal(shape)))
    moved = {"same": numbers, "huge": -numbers, "signs": np.where(rng.random(shape) < 0.1, -numbers, moved)}.get(
        kind, moved
    )
    with np.errstate(all="ignore"):
        first, second = np.array(numbers).astype(dtype), np.array(moved).astype(dtype)
    if first.size:
        at = np.unravel_index(int(rng.integers(first.size)), shape)
        first[at] = {"nan": np.nan, "nan on both": np.nan, "inf": np.inf, "negative zero": -0.0}.get(kind, first[at])
        second[at] = np.nan if kind == "nan on both" else second[at]
    return (np.asfortranarray(first) if kind == "fortran" else first), second


PAIRS = st.builds(pair, st.integers(0, 2**32), st.sampled_from(DTYPES), st.sampled_from(SHAPES), st.sampled_from(KINDS))
TOLERANCES = st.sampled_from([(0.0, 0.0), (1.3e-6, 1e-5)])


@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(PAIRS, max_size=12), tolerances=TOLERANCES, everything=st.booleans())
def test_statistics_are_those_of_each_alone(
    pairs: list[tuple[np.ndarray, np.ndarray]], tolerances: tuple[float, float], everything: bool
) -> None:
    # Each twice: arrays of one size and type are what is measured together.
    given_pairs = [(*arrays, *tolerances) for arrays in pairs * 2]
    together = measure_all(given_pairs, everything=everything)
    for arguments, found in zip(given_pairs, together, strict=True):
        assert bits(found) == bits(measure(*arguments, everything=everything))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("size", [1, 8, 100, 384, 4095, 8192])
def test_statistics_are_numpys(dtype: str, size: int) -> None:
    """Sums of a row of many as numpy's of the one, whose order of summation is its own."""
    rng = np.random.default_rng(size)
    pairs = [pair(int(rng.integers(2**32)), dtype, (size,), kind) for kind in ("near", "signs", "same") * 5]
    for (first, second), found in zip(pairs, measure_all([(*p, 0.0, 0.0) for p in pairs]), strict=True):
        a, b = first.astype("f8"), second.astype("f8")
        difference = np.abs(a - b)
        assert found.sum_squares == np.dot(difference, difference)
        assert (found.dot, found.reference_squares) == (np.dot(a, b), np.dot(a, a))
        assert (found.sum_abs, found.max_abs) == (difference.sum(), difference.max())
        assert (found.sum_rel, found.max_rel) == ((difference / np.abs(a)).sum(), (difference / np.abs(a)).max())
        assert found.worst_index == (int(difference.argmax()),)
        assert bits(found.classic_mean) == bits(np.abs(first - second).mean())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 9), size=st.integers(1, 20000))
def test_rows_are_summed_as_numpy_sums_one(seed: int, rows: int, size: int) -> None:
    rows, rng = min(rows, CHUNK // size), np.random.default_rng(seed)
    first, second = rng.standard_normal((2, rows, size))
    for row, value in enumerate(dots_of_rows(first, second)):
        parts = [float(np.dot(first[row, at : at + 8192], second[row, at : at + 8192])) for at in range(0, size, 8192)]
        assert value == sum(parts)
    integers = rng.integers(0, 2**62, (rows, size))
    assert sums_of_rows(integers, int(integers.max())) == [float(row.sum(dtype=np.float64)) for row in integers]


def recordings(seed: int, dtype: Any, shape: tuple[int, ...], kind: str, arbiter: bool) -> Recordings:
    rng = np.random.default_rng(seed)
    truth = np.asarray(rng.standard_normal(shape))
    if kind in ("zeros", "all zero"):
        truth = np.where(rng.random(shape) < (0.3 if kind == "zeros" else 1.1), 0.0, truth)
    other = np.asarray(truth * (1 + 1e-14 * rng.standard_normal(shape)))
    with np.errstate(all="ignore"):
        low = [np.asarray(high + 1e-7 * rng.standard_normal(shape)).astype(dtype) for high in (truth, other)]
    four = [*low, np.array(truth), np.array(other)]
    if kind in ("nan", "inf") and truth.size:
        four[int(rng.integers(4))].reshape(-1)[int(rng.integers(truth.size))] = np.nan if kind == "nan" else np.inf
    return four[0], low[0].copy() if kind == "same" else four[1], four[2], four[3] if arbiter else None


RECORDINGS = st.builds(
    recordings,
    st.integers(0, 2**32),
    st.sampled_from(["f4", "f4", "f2", ml_dtypes.bfloat16, "f8"]),
    st.sampled_from([shape for shape in SHAPES if math.prod(shape)]),
    st.sampled_from(["near", "same", "zeros", "all zero", "nan", "inf"]),
    st.booleans(),
)


def noise_bits(noise: TensorNoise) -> Any:
    groups = (noise.ordinary, noise.zero, noise.blown)
    mask = None if noise.zero_mask is None else noise.zero_mask.tobytes()
    return [bits(group) for group in groups], mask, noise.nonfinite_differ


@settings(max_examples=60, deadline=None)
@given(tensors=st.lists(RECORDINGS, max_size=12))
def test_noise_is_that_of_each_alone(tensors: list[Recordings]) -> None:
    for four, found in zip(tensors * 2, gather_all(tensors * 2), strict=True):
        assert noise_bits(found) == noise_bits(gather(*four))


def test_noise_is_numpys() -> None:
    tensors = [recordings(seed, "f4", (4095,), "near", True) for seed in range(20)]
    for (r32, p32, r64, p64), found in zip(tensors, gather_all(tensors), strict=True):
        assert p64 is not None
        for kind, difference in {
            "reference": r32 - r64, "reproduced": p32 - r64, "own": p32 - p64, "high": p64 - r64, "truth": r64,
        }.items():  # fmt: skip
            distance = getattr(found.ordinary, kind)
            assert (distance.squares, distance.greatest) == (np.dot(difference, difference), np.abs(difference).max())
        assert bits(found.zero) == bits(Noise())


def test_tensors_among_others_are_judged_as_alone() -> None:
    """Nothing of a tensor reaches its neighbours: buffers are used again, and groups have what is odd taken out."""
    rng = np.random.default_rng(0)
    names = [f"{kind}.{dtype}.{number}" for number in range(3) for dtype in ("f4", "i4", "c8") for kind in KINDS]
    made = {name: pair(int(rng.integers(2**32)), name.split(".")[1], (96,), name.split(".")[0]) for name in names}
    first, second = ({name: arrays[side] for name, arrays in made.items()} for side in (0, 1))
    together = {tensor.name: tensor.to_json() for tensor in compare_arrays(first, second).tensors}
    for name in names:
        alone = compare_arrays({name: first[name]}, {name: second[name]}).tensors[0]
        assert together[name] == alone.to_json()


def test_a_mean_of_complex_numbers_is_not_that_of_their_parts() -> None:
    """reprod_log takes the modulus of each difference, in large arrays as in small ones."""
    rng = np.random.default_rng(0)
    first = (rng.standard_normal(1 << 16) + 1j * rng.standard_normal(1 << 16)).astype("c8")
    second = first * np.complex64(1.001)
    lines = compare_arrays({"a": first}, {"a": second}).classic.lines
    assert lines[1].endswith(f"value: {np.abs(first - second).mean()}")
