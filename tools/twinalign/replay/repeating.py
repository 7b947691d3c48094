"""Whether a unit of the reference gives what was recorded of it when it runs again; else no cause can be tried."""

import math
from collections.abc import Mapping

import numpy as np

from twinalign.replay.rerun_unit import RerunUnit
from twinalign.replay.wrong_unit import rewriting
from twinalign.verdict.array_difference import difference, distance, root_mean_square

_LEAST = 1e-6
"""Relative: far more than the rounding of another run, far less than what random numbers or a count change."""
_ROUNDING = 1e-14
"""Of the largest of a unit's values: so much may be all that there is of another one."""


class NotRepeatedError(Exception):
    """A unit cannot be judged alone, since it does not give the same again."""


def not_repeated(unit: RerunUnit) -> str:
    """By how much a rerun differs from what was recorded, and why as far as known, in words; empty where it does not.

    The unit must be one that is not held to values that agree.
    """
    drawn = unit.backend.random_state()
    with rewriting().unchanged(unit.module):
        first, draws = unit.run(), unit.backend.random_state() != drawn
    with rewriting().unchanged(unit.module):
        second = unit.run()
    name, largest = _furthest(unit.reference, first)
    if largest > _LEAST:  # what vanishes, such as the gradient of keys that cannot matter, is rounding alone
        with rewriting().unchanged(unit.module):
            sizes = [root_mean_square(value) for value in unit.run(everything=True).values()]
        name, largest = _furthest(unit.reference, first, _ROUNDING * max(sizes, default=0.0))
    if not largest > _LEAST:
        return ""
    by = "in another shape" if math.isinf(largest) else f"by {largest:.3g} relative"
    return f"{_WHAT}: {name} differs {by}, {_reason(draws, _furthest(first, second)[1] > _LEAST)}"


_WHAT = "the reference's counterpart does not give what was recorded when it runs again, so that no cause can be tried"


def _reason(draws: bool, changes: bool) -> str:
    if draws:
        return "since it draws random numbers"
    if changes:
        return "and every run gives something else: it keeps something beside tensors, such as a generator of its own"
    return "and every run gives the same: it depends on what ran before it, such as how often it was called"


def _furthest(
    recorded: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray], floor: float = 0.0
) -> tuple[str, float]:
    """The name of what differs most, and its relative difference; infinite where the shape is another.

    What differs by no more than `floor` does not count.
    """
    apart = {
        name: difference(found[name], value).relative if found[name].shape == value.shape else math.inf
        for name, value in recorded.items()
        if name in found and not distance(found[name], value) <= floor
    }
    name = max(apart, key=lambda one: apart[one], default="")
    return name, apart.get(name, 0.0)
