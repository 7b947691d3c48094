"""Values of parameters that one side walks through in another order, and some of them with exchanged axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.twinalign.replay.test_places_of_edits import found
from twinalign.replay.orders_of_values import Arrangement

THEIRS = """
def step(parameters, gradients, moments, t):
    made = []
    for p, g, m in zip(parameters, gradients, moments):
        m = 0.9 * m + (1 - 0.9) * g
        made.append((p - 0.1 * (m / (1 - 0.9 ** t))) * 0.98 ** t)
    return made

def train(parameters, gradients, moments, steps):
    for t in range(1, steps + 1):
        parameters = step(parameters, [g * t for g in gradients], moments, t)
    return parameters
"""
OURS = """
def update(weights, slopes, kept, t):
    found = []
    for w, s, k in zip(weights, slopes, kept):
        k = 0.9 * k + (1 - 0.9) * s
        found.append((w - 0.1 * (k / (1 - 0.98 ** t))) * 0.98 ** t)
    return found

def fit(weights, slopes, kept, steps):
    for t in range(1, steps + 1):
        before, weights = weights, update(weights, [s * t for s in slopes], kept, t)
    return weights
"""


def drawn(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in ((3, 3), (4,), (2, 3), (3, 3), (4,))]


def as_port_has_them(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """In another order, and with square matrices transposed: their shape does not tell."""
    return [arrays[1], arrays[0].T.copy(), arrays[4], arrays[2].T.copy(), arrays[3].T.copy()]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_formula_is_mended_for_each_parameter_in_all_steps(tmp_path: Path, steps: int) -> None:
    """Gradients and moments of two parameters are alike, all of them zeros."""
    parameters, gradients, moments = (drawn(seed) for seed in range(3))
    for some in (gradients, moments):
        some[1][:] = some[4][:] = 0.0
    given = parameters, gradients, moments

    def theirs(made: Any) -> Any:
        return np.concatenate([one.T.ravel() for one in as_port_has_them(made.train(*given, steps))])

    def ours(made: Any) -> Any:
        arrays = made.fit(*map(as_port_has_them, given), steps)
        return np.concatenate([one.T.ravel() for one in arrays])

    edit, place = found(tmp_path, THEIRS, OURS, theirs, ours)
    assert "0.9 ** t" in place.parts[0][1].text
    assert edit.text == "`0.98 ** t` in place of `0.9 ** t`, line 5 of ours_of_places.py"


def test_what_comes_again_and_again_is_arranged_each_time() -> None:
    values = [np.full((1, 2), float(number)) for number in range(7)]
    made = Arrangement([2, 0, 1], [None, (1, 0), None]).of(values)
    assert [one.flat[0] for one in made] == [2, 0, 1, 5, 3, 4]
    assert [one.shape for one in made[:2]] == [(1, 2), (2, 1)]
