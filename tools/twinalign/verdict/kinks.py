"""Divergences in float32 that a kink explains: a ReLU or a maximum that rounding pushes to its other side.

docs/verdict.md, "Kinks", says what was measured and why the conditions are what they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from twinalign.verdict import results
from twinalign.verdict.noise import TensorNoise
from twinalign.verdict.results import TensorVerdict

TOUCHED_FACTOR = 4.0
"""An element is touched where its error is this much over the reference's greatest."""
FEWEST_TOUCHED = 8
"""A kink moves the gradient of a whole filter and of what lies before it; fewer elements are another fault."""
CONCENTRATED = 0.25
"""Near the kink at most this share of a tensor is touched: coarse arithmetic touches all of it."""


@dataclasses.dataclass
class Pending:
    """A tensor whose floor is measured; decided once the recording's typical rounding is known."""

    tensor: TensorVerdict
    noise: TensorNoise
    arrays: tuple[np.ndarray, ...]
    has_arbiter: bool
    basis: str
    low: float
    high: float
    over_floor: bool = False
    """Whether the one thing against it is its distance from the float64 truth."""


def excuse_kinks(pending: Sequence[Pending]) -> None:
    """Take back divergences in float32 where all of the following hold.

    They begin at or after the first gradient (a kink is continuous forward); some gradient is free of them; every
    float64 comparison passes; at least `FEWEST_TOUCHED` elements are touched; and in at least one of the tensors at
    most a share of `CONCENTRATED`.
    """
    first = next((at for at, item in enumerate(pending) if "grad" in item.tensor.name.lower()), len(pending))
    over = [item for item in pending if item.over_floor]
    later = pending[first:]
    if not over or any(item.over_floor for item in pending[:first]) or len(over) == len(later):
        return
    if any((item.tensor.fp64_ratio or 0.0) > 1.0 and not item.tensor.allowed for item in pending):
        return
    touched = {id(item): _touched(item) for item in later if (item.tensor.noise_ratio_worst or 0.0) > TOUCHED_FACTOR}
    if sum(touched.values()) < FEWEST_TOUCHED:
        return
    if not any(0 < touched.get(id(item), 0) <= CONCENTRATED * item.noise.ordinary.count for item in over):
        return
    for item in over:
        _excuse(item)


def _touched(item: Pending) -> int:
    noise = item.noise.ordinary
    reproduced, truth = (np.asarray(array, np.float64) for array in item.arrays[1:3])
    limit = TOUCHED_FACTOR * max(noise.reference.greatest, item.low / 2 * noise.truth.rms)
    return int(np.count_nonzero(np.abs(reproduced - truth) > limit))


def _excuse(item: Pending) -> None:
    tensor = item.tensor
    distance = f"the error is {tensor.noise_ratio:.2g} times the reference's own rounding"
    if item.has_arbiter:
        tensor.verdict = results.ALIGNED
        tensor.reason = (
            f"the float64 runs agree here and everywhere ({tensor.fp64_rel or 0.0:.2g} relative); {distance}, "
            "as where rounding decides for a few elements (at a kink such as ReLU's, a maximum, a cancellation)"
        )
    else:
        tensor.verdict = results.INCONCLUSIVE
        tensor.reason = f"{distance}: a kink or a bug; record the reproduction in float64 as well"
