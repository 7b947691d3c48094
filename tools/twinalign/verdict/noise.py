"""Distances of both sides from the float64 truth, tensor by tensor; exact zeros are measured separately.

docs/verdict.md derives this in "The noise floor" and "Values that are zero in exact arithmetic".
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from twinalign.verdict.cache_pieces import (
    CHUNK,
    WORKSPACE,
    as_type,
    dots_of_rows,
    in_memory_order,
    pieces,
    rows_of,
    stacked,
)

ZERO_SHARE = 2.0**-16
"""An element is zero in exact arithmetic where float64 leaves less than this share of the float32 rounding error: its
own or the tensor's, since an element's own rounding can be zero by luck."""
_PIECE = CHUNK // 4
_FLOAT64 = np.dtype(np.float64)
_SIDES = ("r32", "p32", "r64", "p64")
_maximum, _minimum = np.maximum.reduce, np.minimum.reduce  # the arrays' methods are half as fast on a small array


@dataclasses.dataclass(slots=True)
class Distance:
    """Sum of squares, greatest magnitude and count of differences."""

    squares: float = 0.0
    greatest: float = 0.0
    count: int = 0

    def add(self, difference: np.ndarray) -> None:
        if difference.size:
            self.squares += float(np.dot(difference, difference))
            self.greatest = max(self.greatest, float(_maximum(difference)), -float(_minimum(difference)))
            self.count += difference.size

    def merge(self, other: Distance) -> None:
        self.squares += other.squares
        self.greatest = max(self.greatest, other.greatest)
        self.count += other.count

    @property
    def rms(self) -> float:
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
        return self.reference.count

    def add(self, r32: np.ndarray, p32: np.ndarray, r64: np.ndarray, p64: np.ndarray | None) -> None:
        """Add a piece; all arrays are float64."""
        self.reference.add(r32 - r64)
        self.reproduced.add(p32 - r64)
        self.truth.add(r64)
        if p64 is not None:
            self.own.add(p32 - p64)
            self.high.add(p64 - r64)

    def merge(self, other: Noise) -> None:
        for name in ("reference", "reproduced", "own", "high", "truth"):
            getattr(self, name).merge(getattr(other, name))


@dataclasses.dataclass
class TensorNoise:
    """Noise of `ordinary` elements, of those `zero` in exact arithmetic, and of zeros `blown` up by an optimizer."""

    ordinary: Noise
    zero: Noise
    blown: Noise
    zero_mask: np.ndarray | None
    nonfinite_differ: int


Recordings = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]
"""Of one tensor, all of one shape: the reference and the reproduction in the precision that is judged, the reference's
float64 run, and the reproduction's, if there is one."""

_NOTHING = Noise()
"""Stands for groups that nearly no tensor has; never added to."""


def gather(
    reference: np.ndarray,
    reproduced: np.ndarray,
    reference64: np.ndarray,
    reproduced64: np.ndarray | None,
    inherited_zeros: np.ndarray | None = None,
) -> TensorNoise:
    """Measure the recordings of one tensor; `inherited_zeros` masks elements whose gradient is zero (flat)."""
    with np.errstate(all="ignore"):
        return _gather_one((reference, reproduced, reference64, reproduced64), inherited_zeros)


def gather_all(tensors: Sequence[Recordings]) -> list[TensorNoise]:
    """`gather` for each tensor, bit-equal; small tensors of one size are measured together, which is faster."""
    found: dict[int, TensorNoise] = {}
    alike: dict[tuple[int, tuple[np.dtype | None, ...]], list[int]] = {}
    for at, recordings in enumerate(tensors):
        size = recordings[0].size
        if 0 < size <= _PIECE and all(array is None or array.flags.c_contiguous for array in recordings):
            dtypes = tuple(None if array is None else array.dtype for array in recordings)
            alike.setdefault((size, dtypes), []).append(at)
    with np.errstate(all="ignore"):
        for (size, _), positions in alike.items():
            for some in rows_of(positions, size):
                r32, p32, r64, p64 = (
                    None if side[0] is None else stacked([array for array in side if array is not None], size, name)
                    for side, name in zip(zip(*(tensors[at] for at in some), strict=True), _SIDES, strict=True)
                )
                assert r32 is not None
                assert p32 is not None
                assert r64 is not None
                for at, plain in zip(some, _Plain.of_rows(r32, p32, r64, p64), strict=True):
                    if plain.has_no_zero(plain.rounding.rms):
                        found[at] = TensorNoise(plain.noise, _NOTHING, _NOTHING, None, 0)
                    else:
                        found[at] = _gather_one(tensors[at], None, [plain])
        return [found[at] if at in found else _gather_one(tensors[at], None) for at in range(len(tensors))]


def _gather_one(
    recordings: Recordings, inherited_zeros: np.ndarray | None, plain: list[_Plain] | None = None
) -> TensorNoise:
    """Noise of one tensor; `plain` if its pieces are already measured."""
    reference = recordings[0]
    given = [array for array in recordings if array is not None]
    flat, order = in_memory_order(*given)
    found = TensorNoise(Noise(), Noise(), Noise(), None, 0)
    if inherited_zeros is not None:
        inherited_zeros = inherited_zeros.reshape(reference.shape).transpose(order).reshape(-1)
    plain = plain or _plain_pieces(flat)
    typical = Distance()
    for item in plain:
        typical.merge(item.rounding)
    mask = None
    for piece, item in zip(pieces(flat[0].size, _PIECE, flat), plain, strict=True):
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


def _plain_pieces(flat: tuple[np.ndarray, ...]) -> list[_Plain]:
    """Pieces of `_PIECE` elements, measured `CHUNK` elements at a time, and the rest."""
    size, found = flat[0].size, []
    whole = size - size % _PIECE
    for piece in itertools.chain(pieces(whole, arrays=flat), [slice(whole, size)]):
        if piece.start < piece.stop:
            length = min(_PIECE, piece.stop - piece.start)
            r32, p32, r64, *rest = (array[piece].reshape(-1, length) for array in flat)
            found += _Plain.of_rows(r32, p32, r64, rest[0] if rest else None)
    return found


def _float64(flat: tuple[np.ndarray, ...], piece: slice) -> Recordings:
    r32, p32, r64, *rest = (array[piece].astype(np.float64, copy=False) for array in flat)
    return r32, p32, r64, rest[0] if rest else None


class _Plain(NamedTuple):
    """A piece measured as if it were finite and without exact zeros, as nearly all pieces are."""

    noise: Noise
    least: float
    """Smallest magnitude in the truth."""
    rounding: Distance
    """Rounding error of the reference, over the finite elements."""
    finite: bool

    @classmethod
    def of_rows(cls, r32: np.ndarray, p32: np.ndarray, r64: np.ndarray, p64: np.ndarray | None) -> list[_Plain]:
        """Of each row of `[rows, elements]`, contiguous, at most `CHUNK` elements in all."""
        r32, p32, r64 = (as_type(rows, _FLOAT64, f"float64 {at}") for at, rows in enumerate((r32, p32, r64)))
        columns = [_distances(r32, r64), _distances(p32, r64)]
        if p64 is not None:
            p64 = as_type(p64, _FLOAT64, "float64 3")
            columns += [_distances(p32, p64), _distances(p64, r64)]
        else:
            columns += [[Distance() for _ in r64], [Distance() for _ in r64]]
        columns.append(_distances(r64, None))
        magnitude = np.abs(r64, out=WORKSPACE.take("difference", _FLOAT64, r64.shape))
        leasts = np.minimum.reduce(magnitude, axis=1).tolist()
        found = []
        for row, (own, reproduced, port, high, truth, least) in enumerate(zip(*columns, leasts, strict=True)):
            total = own.squares + reproduced.squares + port.squares + high.squares + truth.squares
            of_finite, finite = own, math.isfinite(total)
            if not finite:
                of_finite, rounding = Distance(), r32[row] - r64[row]
                of_finite.add(rounding[np.isfinite(rounding)])
            found.append(cls(Noise(own, reproduced, port, high, truth), least, of_finite, finite))
        return found

    def has_no_zero(self, typical: float) -> bool:
        return self.finite and self.least > ZERO_SHARE * max(self.rounding.greatest, typical)


def _distances(rows: np.ndarray, truth: np.ndarray | None) -> list[Distance]:
    """For each row of `[rows, elements]`, float64: distance from the truth, or from zero."""
    difference = rows
    if truth is not None:
        difference = np.subtract(rows, truth, out=WORKSPACE.take("difference", _FLOAT64, rows.shape))
    greatest = np.maximum(np.maximum.reduce(difference, axis=1), -np.minimum.reduce(difference, axis=1)) + 0.0
    count = difference.shape[1]
    return [
        Distance(squares, most, count)
        for squares, most in zip(dots_of_rows(difference, difference), greatest.tolist(), strict=True)
    ]


def _add_by_groups(found: TensorNoise, four: Recordings, inherited: np.ndarray | None, typical: float) -> np.ndarray:
    """Add each element of a piece to its group; returns the mask of zeros."""
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
