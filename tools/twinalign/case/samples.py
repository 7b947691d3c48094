"""The samples that `Case.dataset` returns, whatever it returns."""

import itertools
from collections.abc import Iterator
from typing import Any


def first_samples(dataset: Any, most: int) -> Iterator[Any]:
    """The first samples of a dataset or an iterable, at most so many.

    A dataset without `__iter__` ends by its length, as for a loader: Python itself would read on until an IndexError,
    which few datasets raise.
    """
    if hasattr(dataset, "__iter__") or not hasattr(dataset, "__getitem__"):
        return itertools.islice(iter(dataset), most)
    try:
        length = len(dataset)
    except (TypeError, NotImplementedError):  # it has none, or inherits one that it does not define
        return itertools.islice(iter(dataset), most)
    return (dataset[index] for index in range(min(length, most)))
