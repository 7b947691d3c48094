"""In which order a place has its numbers: each may be one that the reference has, and their order none of its."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_LONGEST = 64
"""So many numbers of a place are looked at."""
_DIGITS = 12
Run = tuple[float, ...]


class RunsOfNumbers:
    """The runs of single numbers that the reference has in its places; `places`: each one's values."""

    def __init__(self, places: Sequence[Sequence[np.ndarray]]) -> None:
        self._by_first: dict[float, set[Run]] = {}
        for run in filter(None, map(_run, places)):
            self._by_first.setdefault(run[0], set()).add(run)

    def departs(self, values: Sequence[np.ndarray]) -> int | None:
        """The place in a run of numbers at which no run of the reference's is like it.

        None for what is no run of different numbers, and where one is like it, as far as both go.
        """
        run = _run(values)
        if run is None or len(set(run)) == 1:
            return None
        longest = max((_alike(run, other) for other in self._by_first.get(run[0], ())), default=0)
        return None if longest == len(run) else longest


def _run(values: Sequence[np.ndarray]) -> Run | None:
    if not values or any(value.size != 1 or value.dtype.kind not in "biuf" for value in values[:_LONGEST]):
        return None
    return tuple(float(f"{value.item():.{_DIGITS}g}") for value in values[:_LONGEST])


def _alike(run: Run, other: Run) -> int:
    """How many numbers of a run another one has from the beginning; all where one of some length ends before."""
    pairs = list(zip(run, other, strict=False))
    apart = next((at for at, (one, two) in enumerate(pairs) if one != two), len(pairs))
    return len(run) if apart == len(pairs) and 2 * len(other) > len(run) else apart
