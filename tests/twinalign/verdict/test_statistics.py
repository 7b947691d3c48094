"""Every statistic against exact arithmetic: fractions and mpmath, over numbers that hypothesis draws."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from twinalign.verdict.cache_pieces import CHUNK, sum_pairwise
from twinalign.verdict.statistics import measure

FLOATS = st.floats(-(2.0**50), 2.0**50, width=32, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-15)
SHAPES = npst.array_shapes(min_dims=0, max_dims=3, max_side=6)


@st.composite
def pairs(draw: st.DrawFn, dtype: str = "f4") -> tuple[np.ndarray, np.ndarray]:
    shape = draw(SHAPES)
    first = draw(npst.arrays(dtype, shape, elements=FLOATS))
    second = draw(npst.arrays(dtype, shape, elements=FLOATS))
    near = draw(st.booleans())
    return first, (first * np.dtype(dtype).type(1.0001) if near else second)


def exact(array: np.ndarray) -> list[Fraction]:
    return [Fraction(float(value)) for value in array.reshape(-1)]


def root(value: Fraction) -> float:
    with mpmath.workdps(60):
        return float(mpmath.sqrt(mpmath.mpf(value.numerator) / value.denominator))


@given(pairs())
@settings(max_examples=150, deadline=None)
def test_absolute_statistics_are_exact(pair: tuple[np.ndarray, np.ndarray]) -> None:
    first, second = pair
    found = measure(first, second, 1e-5, 1e-8)
    differences = [abs(b - a) for a, b in zip(exact(first), exact(second), strict=True)]
    assert found.max_abs == pytest.approx(float(max(differences)), rel=1e-15)
    assert found.mean_abs == pytest.approx(float(sum(differences) / len(differences)), rel=1e-12)
    assert found.rms_abs == pytest.approx(root(sum(d * d for d in differences) / len(differences)), rel=1e-12)
    worst = differences[int(np.ravel_multi_index(found.worst_index, first.shape)) if first.ndim else 0]
    assert float(worst) == pytest.approx(found.max_abs, rel=1e-15)


@given(pairs())
@settings(max_examples=150, deadline=None)
def test_relative_statistics_are_exact(pair: tuple[np.ndarray, np.ndarray]) -> None:
    first, second = pair
    found = measure(first, second, 1e-5, 1e-8)
    relative = [abs((b - a) / a) for a, b in zip(exact(first), exact(second), strict=True) if a]
    assert found.nonzero == len(relative)
    if relative:
        assert found.max_rel == pytest.approx(float(max(relative)), rel=1e-12)
        assert found.mean_rel == pytest.approx(float(sum(relative) / len(relative)), rel=1e-12)
        assert found.rms_rel == pytest.approx(root(sum(r * r for r in relative) / len(relative)), rel=1e-12)


@given(pairs())
@settings(max_examples=150, deadline=None)
def test_cosine_is_exact(pair: tuple[np.ndarray, np.ndarray]) -> None:
    first, second = pair
    a, b = exact(first), exact(second)
    norms = sum(x * x for x in a), sum(y * y for y in b)
    found = measure(first, second, 0.0, 0.0).cosine
    if not all(norms):
        assert found is None
    else:
        with mpmath.workdps(60):
            dot = sum(x * y for x, y in zip(a, b, strict=True))
            expected = float(Fraction(dot)) / (root(norms[0]) * root(norms[1]))
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(pairs(), st.floats(0, 1e-2), st.floats(0, 10))
@settings(max_examples=150, deadline=None)
def test_mismatches_are_those_of_numpy(pair: tuple[np.ndarray, np.ndarray], rtol: float, atol: float) -> None:
    first, second = pair
    a, b = first.astype("f8"), second.astype("f8")
    assert measure(first, second, rtol, atol).mismatched == np.count_nonzero(~np.isclose(b, a, rtol, atol))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "bfloat16"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_ulps_count_the_numbers_between(dtype: str, data: st.DataObject) -> None:
    """A step to the next representable number is one ULP, through zero as well."""
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    start = np.array([data.draw(st.sampled_from([0.0, 1.0, -1.0, 3.14, -1e-3, 2.0, 1e-4]))]).astype(kind)
    count = data.draw(st.integers(-20, 20))
    moved = start.copy()
    for _ in range(abs(count)):
        moved = np.nextafter(moved, np.array([np.inf if count > 0 else -np.inf]).astype(kind))
    assert measure(start, moved, 0.0, 0.0).max_ulp == abs(count)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_integers_never_wrap_around(dtype: str, data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    first = data.draw(npst.arrays(dtype, shape))
    second = data.draw(npst.arrays(dtype, shape))
    found = measure(first, second, 0.0, 0.0)
    expected = [abs(int(a) - int(b)) for a, b in zip(first.reshape(-1), second.reshape(-1), strict=True)]
    assert found.max_abs == float(max(expected))
    assert found.mismatched == sum(value > 0 for value in expected)


def test_complex_numbers_are_pairs() -> None:
    first = np.array([[1 + 2j, 3 - 1j]], "c8")
    found = measure(first, first + np.array([[0, 0.5j]], "c8"), 0.0, 0.0)
    assert (found.max_abs, found.worst_index, found.mismatched) == (0.5, (0, 1), 1)


def test_complex_mismatches_are_elements_by_their_modulus() -> None:
    rng = np.random.default_rng(0)
    first = (rng.standard_normal((30, 40)) + 1j * rng.standard_normal((30, 40))).astype("c16")
    for scale in (1e-3, 1.0):
        second = first + scale * (rng.standard_normal(first.shape) + 1j * rng.standard_normal(first.shape))
        found = measure(first, second, 1e-3, 1e-4)
        assert found.mismatched == np.count_nonzero(~np.isclose(second, first, rtol=1e-3, atol=1e-4))
    assert found.mismatched == first.size
    strange = np.array([complex(np.nan, 1), complex(np.inf, 1), complex(1, np.inf)])
    other = np.array([complex(np.nan, 1), complex(np.inf, 2), complex(1, -np.inf)])
    found = measure(strange, other, 0.0, 0.0)
    assert (found.mismatched, found.nonfinite_differ, found.nonfinite_index) == (1, 1, (2,))


def test_nonfinite_elements_count_by_position_and_sign() -> None:
    first = np.array([1.0, np.nan, np.inf, -np.inf, np.inf, 2.0], "f4")
    second = np.array([1.0, np.nan, np.inf, np.inf, 1.0, np.nan], "f4")
    found = measure(first, second, 0.0, 0.0)
    assert (found.nonfinite_differ, found.nonfinite_index, found.finite, found.max_abs) == (3, (3,), 1, 0.0)


def test_a_difference_beyond_float32_is_measured() -> None:
    found = measure(np.array([3e38, 1.0], "f4"), np.array([-3e38, 1.0], "f4"), 0.0, 0.0)
    assert found.max_abs == pytest.approx(6e38)
    assert found.nonfinite_differ == 0


@pytest.mark.parametrize("spread", [1e-30, 1.0, 1e18])
def test_large_float32_arrays_agree_with_float64(spread: float) -> None:
    """The path that computes in float32, over magnitudes whose squares underflow and overflow there."""
    rng = np.random.default_rng(0)
    first = (spread * rng.standard_normal((1 << 20) + 12345)).astype("f4")
    second = (first * (1 + 1e-3 * rng.standard_normal(first.size))).astype("f4")
    found = measure(first, second, 1e-3, 0.0)
    a, b = first.astype("f8"), second.astype("f8")
    difference = np.abs(b - a)
    assert found.max_abs == pytest.approx(difference.max(), rel=1e-6)
    assert found.worst_index == (int(difference.argmax()),)
    assert found.mean_abs == pytest.approx(difference.mean(), rel=1e-5)
    assert found.rms_abs == pytest.approx(np.sqrt(np.mean(difference**2)), rel=1e-5)
    assert found.rms_rel == pytest.approx(np.sqrt(np.mean((difference / np.abs(a)) ** 2)), rel=1e-5)
    assert found.cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-6)
    assert found.mismatched == pytest.approx(np.count_nonzero(difference > 1e-3 * np.abs(a)), rel=1e-4)


@pytest.mark.parametrize("layout", ["C", "F", "mixed", "sliced"])
def test_any_memory_layout(layout: str) -> None:
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal((2, 30, 40, 50)).astype("f4")
    difference = np.abs(second.astype("f8") - first)
    expected = np.unravel_index(difference.argmax(), difference.shape)
    if layout in ("F", "mixed"):
        first = np.asfortranarray(first)
    if layout == "F":
        second = np.asfortranarray(second)
    if layout == "sliced":
        wide = np.zeros((60, 40, 100), "f4")
        wide[::2, :, ::2] = first
        first = wide[::2, :, ::2]
    found = measure(first, second, 0.0, 0.0)
    assert found.worst_index == tuple(int(place) for place in expected)
    assert found.rms_abs == pytest.approx(float(np.sqrt(np.mean(difference**2))), rel=1e-12)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 127, 128, 129, 1000, CHUNK, CHUNK + 1, 5 * CHUNK + 77, 1_234_567])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sum_is_numpys_to_the_bit(size: int, dtype: str) -> None:
    values = np.random.default_rng(size).standard_normal(size).astype(dtype)
    found = sum_pairwise(size, lambda start, stop: np.add.reduce(values[start:stop]))
    assert found == np.add.reduce(values)


def test_statistics_of_nothing() -> None:
    found = measure(np.zeros((0, 3), "f4"), np.zeros((0, 3), "f4"), 0.0, 0.0)
    assert (found.size, found.max_abs, found.mean_abs, found.cosine, found.worst_index) == (0, 0.0, 0.0, None, None)
    assert math.isfinite(found.rms_abs)
