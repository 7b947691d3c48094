"""How a table has the numbers of another, in words."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.verdict.arrangements import rearranged

TABLE = np.arange(12, dtype=np.float32)
GRID = TABLE.reshape(3, 4)


@pytest.mark.parametrize(
    ("reference", "port", "words"),
    [
        (np.repeat(TABLE[:4], 3), np.tile(TABLE[:4], 3), "all 4 values 3 times one behind the other (tile), not each"),
        (np.tile(TABLE[:4], 3), np.repeat(TABLE[:4], 3), "each of 4 values 3 times (repeat), not all one"),
        (np.repeat(GRID, 2, 0), np.tile(GRID, (2, 1)), "all 3 values 2 times one behind the other (tile), not each 2"),
        (TABLE, GRID.T.ravel(), "as 4 rows of 3, not 3 rows of 4 (a transposition)"),
        (GRID, GRID[:, ::-1], "reversed along axis 1"),
        (GRID[:3, :3], GRID[:3, :3].T, "with its axes in the order [1, 0]"),
        (TABLE, np.roll(TABLE, 5), "moved by 5"),
        (TABLE, TABLE[[0, 2, 1, 5, 4, 3, 6, 8, 7, 10, 11, 9]], "by no rule that is known"),
    ],
)
def test_another_arrangement_is_told(reference: np.ndarray, port: np.ndarray, words: str) -> None:
    found = rearranged(reference.ravel(), port.ravel(), reference.shape)
    assert found is not None
    assert found.startswith(f"the same numbers in another order: {words}")


def test_other_numbers_and_samples_of_a_table_are_no_arrangement() -> None:
    assert rearranged(TABLE, TABLE + 1, TABLE.shape) is None
    assert rearranged(TABLE, TABLE[::-1], (24,)) is None
