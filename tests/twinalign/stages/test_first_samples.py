"""How far what a case returns as its dataset is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from twinalign.case.samples import first_samples


class Endless:
    """Raises no IndexError, as datasets for a loader."""

    def __getitem__(self, index: int) -> int:
        return index * index


class Sized(Endless):
    def __len__(self) -> int:
        return 3


class Unsized(Endless):
    def __len__(self) -> int:
        raise NotImplementedError


class Streamed(Sized):
    def __iter__(self) -> Iterator[int]:
        yield from (7, 8, 9, 10)


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Sized(), [0, 1, 4]),
        (Unsized(), [0, 1, 4, 9, 16]),
        (Endless(), [0, 1, 4, 9, 16]),
        (Streamed(), [7, 8, 9, 10]),
        ([5, 6], [5, 6]),
        (iter("abcdefg"), list("abcde")),
    ],
)
def test_a_dataset_is_read_to_its_end_and_no_farther(dataset: object, expected: list[object]) -> None:
    assert list(first_samples(dataset, 5)) == expected
