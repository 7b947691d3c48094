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
_PIECE = CHUNK // 4
_maximum, _minimum = np.maximum.reduce, np.minimum.reduce  # the arrays' methods are half as fast on a small array


@dataclasses.dataclass(slots=True)
class Distance:
    """Sum of squares, greatest magnitude and count of differences."""

    squares: float = 0.0
    greatest: float = 0.0
    count: int = 0

    def add(self, difference: np.ndarray) -> None:
        """Take the differences of one more piece."""
        if difference.size:
            self.squares += float(np.dot(difference, difference))
            self.greatest = max(self.greatest, float(_maximum(difference)), -float(_minimum(difference)))
            self.count += difference.size

    def merge(self, other: Distance) -> None:
        """Take what another has gathered."""
        self.squares += other.squares
        self.greatest = max(self.greatest, other.greatest)
        self.count += other.count

    @property
    def rms(self) -> float:
        """Root of the mean square."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0


@dataclasses.dataclass(slots=True)
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

    def add(self, r32: np.ndarray, p32: np.ndarray, r64: np.ndarray, p64: np.ndarray | None) -> None:
        """Take the elements of one more piece, all four in float64."""
        self.reference.add(r32 - r64)
        self.reproduced.add(p32 - r64)
        self.truth.add(r64)
        if p64 is not None:
            self.own.add(p32 - p64)
            self.high.add(p64 - r64)

    def merge(self, other: Noise) -> None:
        """Take what another has gathered."""
        for name in ("reference", "reproduced", "own", "high", "truth"):
            getattr(self, name).merge(getattr(other, name))


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
    if inherited_zeros is not None:
        inherited_zeros = inherited_zeros.reshape(reference.shape).transpose(order).reshape(-1)
    slices = [*pieces(flat[0].size, _PIECE)]
    plain = [_Plain.of(_float64(flat, piece)) for piece in slices]
    typical = Distance()
    for item in plain:
        typical.merge(item.rounding)
    mask = None
    for piece, item in zip(slices, plain, strict=True):
        if inherited_zeros is None and item.has_no_zero(typical.rms):
            found.ordinary.merge(item.noise)
            continue
        blown = None if inherited_zeros is None else inherited_zeros[piece]
        zero = _add_by_groups(found, _float64(flat, piece), blown, typical.rms)
        if zero.any():
            mask = np.zeros(flat[0].size, bool) if mask is None else mask
            mask[piece] = zero
    if mask is not None:
        inverse = np.argsort(order) if order else ()
        permuted = tuple(reference.shape[axis] for axis in order)
        found.zero_mask = mask.reshape(permuted).transpose(inverse).reshape(-1)
    return found


_Four = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]


def _float64(flat: tuple[np.ndarray, ...], piece: slice) -> _Four:
    r32, p32, r64, *rest = (array[piece].astype(np.float64, copy=False) for array in flat)
    return r32, p32, r64, rest[0] if rest else None


@dataclasses.dataclass(slots=True)
class _Plain:
    """A piece measured as if all of it were finite and nothing zero in exact arithmetic, as nearly all pieces are."""

    noise: Noise
    least: float
    """Smallest magnitude in the truth."""
    rounding: Distance
    """Of the finite elements: the reference's rounding."""
    finite: bool

    @classmethod
    def of(cls, four: _Four) -> _Plain:
        noise = Noise()
        noise.add(*four)
        groups = (noise.reference, noise.reproduced, noise.own, noise.high, noise.truth)
        finite = all(math.isfinite(distance.squares) for distance in groups)
        rounding = noise.reference
        if not finite:
            rounding = Distance()
            difference = four[0] - four[2]
            rounding.add(difference[np.isfinite(difference)])
        return cls(noise, float(_minimum(np.abs(four[2]))), rounding, finite)

    def has_no_zero(self, typical: float) -> bool:
        return self.finite and self.least > ZERO_SHARE * max(self.rounding.greatest, typical)


def _add_by_groups(found: TensorNoise, four: _Four, inherited: np.ndarray | None, typical: float) -> np.ndarray:
    """Add a piece element by element to the group that each is in; returns the mask of those that are zero."""
    r32, p32, r64, p64 = four
    finite = np.isfinite(r32) & np.isfinite(p32) & np.isfinite(r64)
    if p64 is not None:
        odd = ~np.isfinite(p64) | ~np.isfinite(r64)
        found.nonfinite_differ += int(np.count_nonzero(odd & (p64 != r64) & ~(np.isnan(p64) & np.isnan(r64))))
        finite &= np.isfinite(p64)
    blown = np.zeros(len(r32), bool) if inherited is None else inherited & finite
    limit = ZERO_SHARE * np.maximum(np.abs(r32 - r64), typical)
    zero = (np.abs(r64) <= limit) & (limit > 0) & finite & ~blown
    for group, members in ((found.zero, zero), (found.blown, blown), (found.ordinary, finite & ~zero & ~blown)):
        if members.any():
            group.add(r32[members], p32[members], r64[members], None if p64 is None else p64[members])
    return zero
