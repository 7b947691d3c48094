"""How far two arrays are apart, in as few passes over them as it takes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

_SAMPLES = 64
_ESTIMATED = 4096
_PIECE = 1 << 16
_ESTIMATE_OFF = 4.0
"""An estimated scale may be off by this factor: channels differ, and the samples lie at even distances."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A port's array against the reference's.

    Attributes:
        relative: root mean square of the difference over that of the reference (infinite where the latter is zero, or
            where shapes or NaN positions differ).
        rms, max_abs: of the difference; the latter is looked for where the difference is to be seen at all.
        reference_rms: of the reference.
        worst_index: of the greatest difference.
        text: what a number cannot say, e.g. other shapes.
    """

    relative: float
    rms: float = 0.0
    max_abs: float = 0.0
    reference_rms: float = 0.0
    worst_index: tuple[int, ...] = ()
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        """Numbers as JSON has them: None for what is infinite."""
        values = dataclasses.asdict(self)
        return {k: (None if isinstance(v, float) and not np.isfinite(v) else v) for k, v in values.items()}


def difference(port: np.ndarray, reference: np.ndarray, scale: float | None = None, allowed: float = 0.0) -> Difference:
    """Measure `port` against `reference`, both of any shape and dtype.

    `scale` is about the root mean square of the reference, where that is known. A relative difference clearly below
    `allowed` is then told by it, and its worst element, which nobody asks for, is not looked for.
    """
    port, reference = real_pairs(port), real_pairs(reference)
    if port.shape != reference.shape:
        return Difference(np.inf, text=f"shape {list(port.shape)}, the reference has {list(reference.shape)}")
    if not reference.size:
        return Difference(0.0)
    if reference.dtype.kind in "biu":
        wrong = port != reference
        count = int(wrong.sum())
        share = count / reference.size
        where = _index(int(wrong.argmax()), reference.shape) if count else ()
        return Difference(share, share, float(count > 0), 1.0, where, f"{count} values differ" if count else "")
    ours, theirs = port.reshape(-1), reference.reshape(-1)
    squares = _sum_of_squares_between(ours, theirs)
    if not np.isfinite(squares):
        return _with_infinities(port, reference)
    rms = (squares / ours.size) ** 0.5
    if rms == 0.0:
        return Difference(0.0)
    if scale and rms < allowed / _ESTIMATE_OFF * scale:
        return Difference(rms / scale, rms, reference_rms=scale)
    scale = root_mean_square(reference)
    apart = np.abs(ours - theirs)
    worst = int(apart.argmax())
    relative = rms / scale if scale > 0 else np.inf
    return Difference(relative, rms, float(apart[worst]), scale, _index(worst, reference.shape))


def real_pairs(array: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs, along an axis more at the end; anything else as it is."""
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def _sum_of_squares_between(ours: np.ndarray, theirs: np.ndarray) -> float:
    """In pieces that stay in the processor's cache, so that large arrays are read once and no third is made."""
    total, piece = 0.0, np.empty(min(_PIECE, ours.size), np.result_type(ours, theirs))
    for start in range(0, ours.size, _PIECE):
        part = piece[: min(_PIECE, ours.size - start)]
        np.subtract(ours[start : start + _PIECE], theirs[start : start + _PIECE], out=part)
        # Not a dot product: BLAS would wake its threads for every piece.
        total += float(np.einsum("i,i->", part, part))
    return total


def estimated_scale(array: np.ndarray) -> float:
    """Root mean square of some of the elements, of all of them where those are zero."""
    flat = array.reshape(-1)
    return root_mean_square(flat[:: max(1, flat.size // _ESTIMATED)]) or root_mean_square(flat)


def root_mean_square(array: np.ndarray) -> float:
    """Of all elements."""
    flat = real_pairs(array).reshape(-1)
    return float(np.dot(flat, flat) / flat.size) ** 0.5 if flat.size else 0.0


def sample_of(array: np.ndarray, count: int = _SAMPLES) -> list[float]:
    """A few elements at even distances, by which the same values are recognised elsewhere."""
    flat = real_pairs(array).reshape(-1)
    chosen = flat[:: max(1, flat.size // count)][:count]
    return [float(value) if np.isfinite(value) else 0.0 for value in chosen]


def distance_of_samples(port: list[float], reference: list[float]) -> float:
    """Relative distance of two tensors, estimated from their samples."""
    ours, theirs = np.array(port), np.array(reference)
    if ours.shape != theirs.shape or not ours.size:
        return np.inf
    scale, apart = root_mean_square(theirs), root_mean_square(ours - theirs)
    return apart / scale if scale > 0 else (np.inf if apart else 0.0)


def same_sample(first: list[float], second: list[float], tolerance: float = 1e-6) -> bool:
    """Whether two samples are of the same values, up to rounding."""
    if len(first) != len(second):
        return False
    scale = max((abs(value) for value in (*first, *second)), default=0.0)
    return all(abs(a - b) <= tolerance * scale for a, b in zip(first, second, strict=True))


def _index(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(position, shape))


def _with_infinities(port: np.ndarray, reference: np.ndarray) -> Difference:
    """Where NaN or infinities are about: their places must agree, and the rest is measured without them."""
    kinds = [
        np.where(np.isnan(a), 2, np.where(np.isposinf(a), 1, np.where(np.isneginf(a), -1, 0)))
        for a in (port, reference)
    ]
    wrong = kinds[0] != kinds[1]
    if wrong.any():
        text = f"{int(wrong.sum())} elements are NaN or infinite on one side only"
        return Difference(np.inf, worst_index=_index(int(wrong.argmax()), reference.shape), text=text)
    finite = kinds[1] == 0
    return difference(port[finite], reference[finite])
