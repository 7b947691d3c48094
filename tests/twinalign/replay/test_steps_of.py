"""How many steps a recorded training has made."""

from __future__ import annotations

import numpy as np

from twinalign.replay.training import steps_of


def test_several_optimizers_make_more_steps_than_the_loop() -> None:
    counts = {
        "loss": 6,
        "learning_rate": 6,
        "learning_rate.2": 6,
        "weight_norm.w": 12,
        "batch_rms": 18,
        "batch_size": 18,
    }
    assert steps_of({name: np.zeros(count) for name, count in counts.items()}) == 6
    # A loop that accumulates gradients makes fewer steps of its optimizer.
    assert steps_of({"loss": np.zeros(6), "learning_rate": np.zeros(3), "weight_norm.w": np.zeros(3)}) == 6
    assert steps_of({"weight_norm.w": np.zeros(4)}) == 4
