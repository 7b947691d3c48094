"""Divergences in float32 where the reference itself jumps when last bits of its weights and inputs move.

Quantisation, rounding, thresholds and the choice of the greatest are steps: a value that rounding carries across one
changes all that follows by far more than rounding, on either side, while the float64 runs agree; docs/verdict.md,
"Steps".
"""

from collections.abc import Mapping, Sequence

import numpy as np

from twinalign.verdict.excuses import Pending
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, TensorVerdict

JUMP = 64.0
"""So many times its own rounding the reference changes at a step; moved by a few last bits alone, it changes less."""
_APART = 4.0
"""Of two runs that cross steps, one may cross so many times as much."""


def by_rounding_alone(tensors: Sequence[TensorVerdict]) -> bool:
    """Whether something diverged, and all that did is further away in float32 alone."""
    wrong = [one for one in tensors if one.verdict in (DIVERGED, INCONCLUSIVE) and one.accepted is None]
    return bool(wrong) and all(
        one.basis == "float64" and one.fp64_ratio is not None and one.fp64_ratio <= 1.0 for one in wrong
    )


def excuse_jumps(pending: Sequence[Pending], repeat: Mapping[str, np.ndarray]) -> None:
    """Withdraw divergences in float32 that are no larger than a jump of the reference; `repeat`: as it was moved.

    The float64 runs must agree on all that is measured, and one of the tensors that diverged must jump.
    """
    over = [item for item in pending if item.over_floor]
    if not repeat or not by_rounding_alone([item.tensor for item in over]):
        return
    if any((item.tensor.fp64_ratio or 0.0) > 1.0 and not item.tensor.allowed for item in pending):
        return
    changes = [_change(item, repeat.get(item.tensor.name)) for item in over]
    own = [item.noise.ordinary.reference for item in over]
    if not any(greatest > JUMP * floor.greatest for (_, greatest), floor in zip(changes, own, strict=True)):
        return
    for item, (rms, greatest) in zip(over, changes, strict=True):
        error, tensor = item.noise.ordinary.reproduced, item.tensor
        if error.rms <= _APART * rms and error.greatest <= _APART * greatest:
            tensor.verdict, item.over_floor = ALIGNED, False
            tensor.reason = (
                f"the float64 runs agree ({tensor.fp64_rel or 0.0:.2g} relative); the reference itself changes by "
                f"{greatest:.2g} in float32 when last bits of its weights and inputs move, and the port's error is "
                f"{error.greatest:.2g}: a step, such as a quantisation or a threshold, lies between"
            )


def _change(item: Pending, moved: np.ndarray | None) -> tuple[float, float]:
    """Root mean square and greatest of what moving changes in the reference; nothing where it was not recorded."""
    reference = item.arrays[0]
    if moved is None or moved.shape != reference.shape or moved.dtype != reference.dtype:
        return 0.0, 0.0
    apart = np.abs(moved.astype(np.float64) - reference.astype(np.float64))
    return float(np.sqrt(np.square(apart).mean())), float(apart.max())
