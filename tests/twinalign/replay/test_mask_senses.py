"""Masks that a layer takes in the port's sense."""

from __future__ import annotations

import numpy as np

from twinalign.replay.mask_forms import other_truths, senses_of


def test_a_mask_with_the_opposite_truth_values_has_a_sense() -> None:
    hidden = np.arange(6) >= 4
    inverted = other_truths(~hidden, hidden)
    assert inverted is not None
    assert senses_of({"input.3.1": inverted, "output.3.0": inverted}) == {"input.3.1": False}
    assert other_truths(hidden, hidden) is None
