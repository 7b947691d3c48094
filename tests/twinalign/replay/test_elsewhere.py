"""A choice between equals, which noise flips, hides no difference in other elements."""

import numpy as np
import pytest

from twinalign.replay.layers import _elsewhere

REFERENCE = np.linspace(1.0, 2.0, 40)


def moved(*places: int) -> np.ndarray:
    values = REFERENCE.copy()
    values[list(places)] += 0.5
    return values


@pytest.mark.parametrize(
    ("port", "noise", "found"),
    [
        (moved(*range(10, 20)), moved(3), True),
        (moved(*range(10, 20)), REFERENCE, False),  # nothing is flipped: the root mean square decides
        (moved(3, 4, 5), moved(3), False),  # of as many equals noise may have flipped one
        (moved(3), moved(3), False),
        (REFERENCE * (1 + 1e-5), moved(3), False),  # constants in float32
        (moved(*range(10, 20))[1:], moved(3), False),
    ],
)
def test_far_more_elements_than_noise_flips_are_a_difference(port: np.ndarray, noise: np.ndarray, found: bool) -> None:
    assert _elsewhere(port, REFERENCE, noise, 1e-3) is found
