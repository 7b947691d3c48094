"""Both backends answer alike."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.backends import backend_of_side


@pytest.mark.parametrize("side", ["ref", "paddle"])
def test_an_output_that_is_given_twice_counts_twice(side: str) -> None:
    backend = backend_of_side(side)
    x = backend.detached(backend.to_tensor(np.arange(3.0), "float64", "cpu"), True)
    y = x * x
    seeds = [backend.to_tensor(np.full(3, value), "float64", "cpu") for value in (1.0, 10.0, 100.0)]
    (found,) = backend.gradients([y, x * 3, y], [x], seeds)
    assert backend.to_array(found).tolist() == [30.0, 101 * 2 + 30.0, 101 * 4 + 30.0]
