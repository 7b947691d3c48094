"""Other inputs, on which what is proven once is tried again."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.replay.moved_inputs import noisy


@pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
def test_fractions_stay_fractions(size: float) -> None:
    rng = np.random.default_rng(1)
    fractions, others = rng.uniform(size=(50, 4)), rng.standard_normal((50, 4))
    moved = noisy(fractions, size, rng)
    assert moved.min() >= 0.0
    assert moved.max() <= 1.0
    assert np.abs(moved - fractions).mean() > 0.05
    assert noisy(others, size, rng).min() < 0.0


def test_little_noise_moves_a_fraction_as_it_moves_any_number() -> None:
    array = np.array([0.25, 0.5, 0.75])
    by_hand = array * (1 + 1e-6 * np.random.default_rng(3).standard_normal(3))
    np.testing.assert_allclose(noisy(array, 1e-6, np.random.default_rng(3)), by_hand, rtol=0, atol=1e-15)
