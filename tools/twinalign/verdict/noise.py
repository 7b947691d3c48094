"""Distances of both sides from the float64 truth, tensor by tensor, with structural zeros apart.

docs/verdict.md, "The noise floor" and "Values that are zero in exact arithmetic", derives what is gathered here.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from twinalign.verdict.chunks import CHUNK, in_memory_order, pieces

ZERO_SHARE = 2.0**-16
"""An element is zero in exact arithmetic where float64 leaves less than this share of the float32 rounding error: its
own or the tensor's, since an element's own rounding can be zero by luck."""


@dataclasses.dataclass
class Distance:
    """Sum of squares, greatest magnitude and count of differences."""

    squares: float = 0.0
    greatest: float = 0.0
    count: int = 0

    def add(self, difference: np.ndarray) -> None:
        """Take the differences of one more piece."""
        if difference.size:
            self.squares += float(np.dot(difference, difference))
            self.greatest = max(self.greatest, float(difference.max()), -float(difference.min()))
            self.count += difference.size

    @property
    def rms(self) -> float:
        """Root of the mean square."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0


@dataclasses.dataclass
class Noise:
    """One group of elements of one tensor: how far each recording is from the reference's float64 run."""

    reference: Distance = dataclasses.field(default_factory=Distance)
    """Reference against its own float64 run: the noise floor."""
    reproduced: Distance = dataclasses.field(default_factory=Distance)
    """Reproduction against the reference's float64 run."""
    own: Distance = dataclasses.field(default_factory=Distance)
    """Reproduction against its own float64 run."""
    high: Distance = dataclasses.field(default_factory=Distance)
    """The two float64 runs against each other."""
    truth: Distance = dataclasses.field(default_factory=Distance)
    """The reference's float64 run itself: the scale."""

    @property
    def count(self) -> int:
        """Elements in the group."""
        return self.reference.count


@dataclasses.dataclass
class TensorNoise:
    """`ordinary` elements, those `zero` in exact arithmetic, and those `blown` up from such by an optimizer."""

    ordinary: Noise
    zero: Noise
    blown: Noise
    zero_mask: np.ndarray | None
    nonfinite_differ: int


@np.errstate(all="ignore")
def gather(
    reference: np.ndarray,
    reproduced: np.ndarray,
    reference64: np.ndarray,
    reproduced64: np.ndarray | None,
    inherited_zeros: np.ndarray | None = None,
) -> TensorNoise:
    """Walk over the four recordings of one tensor, all of one shape.

    Args:
        reference: In the precision that is judged.
        reproduced: Likewise.
        reference64: The reference's float64 run.
        reproduced64: The reproduction's float64 run, if there is one.
        inherited_zeros: Flat mask of elements whose gradient is zero in exact arithmetic.
    """
    given = [reference, reproduced, reference64, *([] if reproduced64 is None else [reproduced64])]
    flat, order = in_memory_order(*given)
    found = TensorNoise(Noise(), Noise(), Noise(), None, 0)
    mask = None
    if inherited_zeros is not None:
        inherited_zeros = inherited_zeros.reshape(reference.shape).transpose(order).reshape(-1)
    typical = _typical_rounding(flat[0], flat[2])
    for piece in pieces(flat[0].size, CHUNK // 4):
        r32, p32, r64, *rest = (array[piece].astype(np.float64) for array in flat)
        p64 = rest[0] if rest else None
        finite = np.isfinite(r32) & np.isfinite(p32) & np.isfinite(r64)
        if p64 is not None:
            odd = ~np.isfinite(p64) | ~np.isfinite(r64)
            found.nonfinite_differ += int(np.count_nonzero(odd & (p64 != r64) & ~(np.isnan(p64) & np.isnan(r64))))
            finite &= np.isfinite(p64)
        rounding = np.abs(r32 - r64)
        blown = np.zeros(len(r32), bool) if inherited_zeros is None else inherited_zeros[piece] & finite
        limit = ZERO_SHARE * np.maximum(rounding, typical)
        zero = (np.abs(r64) <= limit) & (limit > 0) & finite & ~blown
        if zero.any():
            mask = np.zeros(flat[0].size, bool) if mask is None else mask
            mask[piece] = zero
        for group, members in ((found.zero, zero), (found.blown, blown), (found.ordinary, finite & ~zero & ~blown)):
            _add(group, members, r32, p32, r64, p64)
    if mask is not None:
        inverse = np.argsort(order) if order else ()
        permuted = tuple(reference.shape[axis] for axis in order)
        found.zero_mask = mask.reshape(permuted).transpose(inverse).reshape(-1)
    return found


def _typical_rounding(low: np.ndarray, high: np.ndarray) -> float:
    """RMS of the finite rounding errors of a whole tensor, given flat."""
    distance = Distance()
    for piece in pieces(low.size, CHUNK // 4):
        difference = low[piece].astype(np.float64) - high[piece]
        distance.add(difference[np.isfinite(difference)])
    return distance.rms


def _add(
    group: Noise, members: np.ndarray, r32: np.ndarray, p32: np.ndarray, r64: np.ndarray, p64: np.ndarray | None
) -> None:
    if not members.all():
        if not members.any():
            return
        r32, p32, r64 = r32[members], p32[members], r64[members]
        p64 = None if p64 is None else p64[members]
    group.reference.add(r32 - r64)
    group.reproduced.add(p32 - r64)
    group.truth.add(r64)
    if p64 is not None:
        group.own.add(p32 - p64)
        group.high.add(p64 - r64)
