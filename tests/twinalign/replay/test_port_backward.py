"""Values of gradients in the port's backward pass."""

from __future__ import annotations

import types
from typing import Any, cast

import numpy as np

from twinalign.replay.port_backward import ForcedBackward


def test_a_sum_of_gradients_of_one_number_is_an_array() -> None:
    shares = [np.array(2.0), np.array(0.5)]
    backward = cast(Any, types.SimpleNamespace(backend=None))
    found = ForcedBackward._values(backward, shares[0] + shares[1])
    assert isinstance(found, np.ndarray)
    assert found.shape == ()
    assert found == 2.5
