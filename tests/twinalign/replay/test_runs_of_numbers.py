"""Numbers that a place has one after the other, beside the reference's."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.replay.runs_of_numbers import RunsOfNumbers

KNOWN = RunsOfNumbers([[np.float64(one) for one in run] for run in ([0.0, 0.0, 0.9, 0.9], [1, 2, 3], [0.0])])


@pytest.mark.parametrize(
    ("run", "departs"),
    [
        ([0.0, 0.9], 1),
        ([0.0, 0.0, 0.9], None),
        ([0.0, 0.0, 0.9, 0.9, 0.5], None),  # the reference's run ends before
        ([2, 3], 0),
        ([1, 2, 4], 2),
        ([0.9, 0.9, 0.9], None),  # one number
        ([np.ones(2), np.zeros(2)], None),
    ],
)
def test_a_run_departs_where_no_other_goes_on_so(run: list[float], departs: int | None) -> None:
    assert KNOWN.departs([np.asarray(one) for one in run]) == departs
