"""How far two arrays are apart."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.verdict import array_difference
from twinalign.verdict.array_difference import difference


def test_values_in_one_place_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.array([1.0, np.nan, np.inf, -2.0])
    with np.errstate(invalid="ignore"):
        apart = difference(values.copy(), values)
    monkeypatch.setattr(array_difference, "_sum_of_squares_between", None)
    assert difference(values.reshape(2, 2), values.reshape(2, 2)) == apart
    assert apart.relative == 0.0


def test_views_of_one_place_may_differ() -> None:
    values = np.arange(4.0).reshape(2, 2)
    assert difference(values.T, values).relative > 0.0
    assert difference(values.view(np.int64).view(np.float64), values).relative == 0.0
    assert difference(values.reshape(-1)[::3], values.reshape(-1)[:2]).relative > 0.0


def test_a_mask_of_the_least_number_is_measured() -> None:
    """The squares of such numbers are infinite, and the numbers are not."""
    mask = np.array([0.0, np.finfo(np.float64).min, 0.0])
    apart = difference(np.array([0.0, -1e4, 0.0]), mask)
    assert apart.relative == pytest.approx(1.0)
    assert apart.worst_index == (1,)
    assert apart.max_abs == pytest.approx(np.finfo(np.float64).max)
    assert difference(mask * 0.5, mask).relative == pytest.approx(0.5)
    assert difference(mask, mask.copy()).relative == 0.0
