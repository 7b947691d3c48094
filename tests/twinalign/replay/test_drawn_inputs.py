"""Second draws of a case's inputs: what is the same each time is drawn anew from its own values."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.case.definition import Case
from twinalign.replay.case_run import PLAIN, REDRAWN, _drawn_inputs

MASK = (np.arange(6) < np.array([[6], [5], [4], [3]])).astype(np.float32)
SAME = {
    "mask": MASK,
    "hidden": MASK < 1,
    "added": np.where(MASK > 0, 0.0, -np.inf),
    "lengths": MASK.sum(1).astype(np.int64),
    "scale": np.float32(3.0),
    "table": np.linspace(0.0, 1.7, 8).reshape(2, 4),
    "empty": np.zeros((3, 0), np.int64),
    "ones": np.ones((2, 3)),
}


class Masked(Case):
    same_too = False

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return SAME if self.same_too else {"x": rng.standard_normal((4, 6)), **SAME}


def test_what_differs_between_draws_is_the_case_s_own() -> None:
    plain, redrawn = (_drawn_inputs(Masked(), 0, draw) for draw in (PLAIN, REDRAWN))
    np.testing.assert_array_equal(plain["x"], redrawn["x"])
    assert not np.array_equal(_drawn_inputs(Masked(), 0, 0)["x"], plain["x"])
    for name, array in SAME.items():
        np.testing.assert_array_equal(plain[name], array)


@pytest.mark.parametrize("name", ["mask", "hidden", "added", "lengths"])
def test_masks_and_lengths_have_other_values_of_their_own(name: str) -> None:
    redrawn = _drawn_inputs(Masked(), 0, REDRAWN)[name]
    assert redrawn.shape == SAME[name].shape
    assert redrawn.dtype == SAME[name].dtype
    assert set(redrawn.ravel()) <= set(SAME[name].ravel())
    assert not np.array_equal(redrawn, SAME[name])
    np.testing.assert_array_equal(redrawn, _drawn_inputs(Masked(), 0, REDRAWN)[name])  # on the other side
    rows = MASK.min(1) < 1
    if redrawn.ndim > 1:  # a row that hides something and shows something still does
        assert (redrawn.min(1) < redrawn.max(1))[rows].all()


def test_columns_of_a_mask_that_are_one_everywhere_are_so_no_more() -> None:
    assert MASK.all(0).sum() == 3
    assert _drawn_inputs(Masked(), 0, REDRAWN)["mask"].all(0).sum() <= 1


def test_what_has_no_other_values_stays() -> None:
    redrawn = _drawn_inputs(Masked(), 0, REDRAWN)
    for name in ("scale", "empty", "ones"):
        np.testing.assert_array_equal(redrawn[name], SAME[name])


@pytest.mark.parametrize(("same_too", "draw"), [(False, REDRAWN), (True, PLAIN), (True, REDRAWN)])
def test_what_has_a_rounding_is_turned_around(same_too: bool, draw: int) -> None:
    case = Masked()
    case.same_too = same_too
    np.testing.assert_array_equal(_drawn_inputs(case, 0, draw)["table"], SAME["table"][:, ::-1])
