"""Which parameters a moving average may leave out, from the distances of all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from twinalign.files.curve_names import BUFFER_NORM, EMA_DISTANCE
from twinalign.replay.left_out_averages import left_out

NAMES = [f"teacher.{layer}.{end}" for layer in range(4) for end in ("weight", "bias")]
SEEN = [
    {name: (0.1 * step * (3 + at**1.5), 0.07 * step * (3 + at**1.5) + 0.01 * at) for at, name in enumerate(NAMES)}
    for step in range(1, 4)
]
REFERENCE = np.array([math.hypot(*(now for _, now in step.values())) for step in SEEN])


def port_without(*names: str) -> np.ndarray:
    return np.array([math.hypot(*(pair[name not in names] for name, pair in step.items())) for step in SEEN])


@pytest.mark.parametrize("names", [NAMES[-2:], NAMES[-3:], NAMES[:2], NAMES[1::2], [NAMES[3]], [NAMES[0], NAMES[5]]])
def test_the_likeliest_group_is_the_one_that_is_left_out(names: list[str]) -> None:
    port = {EMA_DISTANCE: port_without(*names)}
    found = left_out(SEEN, {EMA_DISTANCE: REFERENCE}, port, {EMA_DISTANCE: 1e-12}, [EMA_DISTANCE])
    assert found[0] == tuple(names)


def test_buffers_of_what_is_averaged_are_left_out_alone_or_with_others() -> None:
    wrong = [f"{BUFFER_NORM}teacher.1.running_mean", f"{BUFFER_NORM}student.1.running_mean"]
    port = {EMA_DISTANCE: port_without(NAMES[0])}
    given = SEEN, {EMA_DISTANCE: REFERENCE}, port, {EMA_DISTANCE: 1e-12}
    assert left_out(*given, wrong) == [("teacher.1.running_mean",)]
    assert (NAMES[0], "teacher.1.running_mean") in left_out(*given, [EMA_DISTANCE, *wrong])


def test_without_averages_there_is_nothing_to_leave_out() -> None:
    assert left_out([], {}, {}, {}, [EMA_DISTANCE]) == []
    assert left_out(SEEN, {}, {}, {}, [EMA_DISTANCE]) == []
