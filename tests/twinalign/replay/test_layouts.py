"""Forms in which a port has a tensor of the reference."""

from __future__ import annotations

import numpy as np

from twinalign.replay.layouts import inverted


def test_a_mask_of_the_opposite_sense_is_known_though_it_is_wrong_in_some_places() -> None:
    hidden = np.triu(np.ones((12, 12), bool), 1)
    assert inverted(~hidden, hidden) is not None
    shifted = np.tril(np.ones((12, 12), bool), 1)
    form = inverted(shifted, hidden)
    assert form is not None
    assert (form.to_reference(shifted) != hidden).sum() == 11
    assert inverted(np.triu(np.ones((12, 12), bool), 2), hidden) is None
    chosen = np.random.default_rng(0).uniform(size=(12, 12)) < 0.5
    assert inverted(chosen, hidden) is None
