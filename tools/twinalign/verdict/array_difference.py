"""How far two arrays are apart, in as few passes over them as it takes."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from twinalign.verdict.statistics import components

_SAMPLES = 64
_ESTIMATED = 4096
_COUNTED = 65536
"""Of about so many elements it is counted how many differ."""
_PIECE = 1 << 16
_ESTIMATE_OFF = 4.0
"""An estimated scale may be off by this factor: channels differ, and the samples lie at even distances."""
_OF_SQUARES = 2.0**600
"""Numbers of float64 divided by this have squares, and sums of these, of float64 as well."""


ROUNDED_SAMPLE, _OF_ONE_ELEMENT = 2e-6, 64.0
"""Of the root mean square of data, what float32 may round; and how many times that a single element may differ."""
OF_SHAPES = "shape "
"""Begins the text of a difference between arrays of different shapes."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A port's array against the reference's; `max_abs` is looked for only if the difference is noticeable."""

    relative: float
    """Root mean square of the difference over the reference's; infinite if that is zero, or shapes or NaN differ."""
    rms: float = 0.0
    max_abs: float = 0.0
    reference_rms: float = 0.0
    worst_index: tuple[int, ...] = ()
    text: str = ""
    """What a number cannot say, such as other shapes."""

    def to_json(self) -> dict[str, Any]:
        """JSON numbers, None for infinities."""
        values = dataclasses.asdict(self)
        return {k: (None if isinstance(v, float) and not np.isfinite(v) else v) for k, v in values.items()}


def difference(port: np.ndarray, reference: np.ndarray, scale: float | None = None, allowed: float = 0.0) -> Difference:
    """Measure `port` against `reference`, both of any shape and dtype.

    With `scale`, the approximate root mean square of the reference, a relative difference clearly below `allowed` is
    measured by it, without a search for the worst element.
    """
    port, reference = _real_pairs(port), _real_pairs(reference)
    if port.shape != reference.shape:
        return Difference(np.inf, text=f"{OF_SHAPES}{list(port.shape)}, the reference has {list(reference.shape)}")
    if not reference.size:
        return Difference(0.0)
    if reference.dtype.kind in "biu":
        wrong = port != reference
        count = int(wrong.sum())
        share = count / reference.size
        where = _index(int(wrong.argmax()), reference.shape) if count else ()
        return Difference(share, share, float(count > 0), 1.0, where, f"{count} values differ" if count else "")
    if _are_one(port, reference):
        return Difference(0.0)
    ours, theirs = port.reshape(-1), reference.reshape(-1)
    squares = _sum_of_squares_between(ours, theirs)
    if not np.isfinite(squares):
        return _with_infinities(port, reference)
    rms = (squares / ours.size) ** 0.5
    if rms == 0.0:
        return Difference(0.0)
    if scale and rms < allowed / _ESTIMATE_OFF * scale:
        return Difference(rms / scale, rms, reference_rms=scale)
    scale = quick_root_mean_square(reference)
    apart = np.abs(ours - theirs)
    worst = int(apart.argmax())
    relative = rms / scale if scale > 0 else np.inf
    return Difference(relative, rms, float(apart[worst]), scale, _index(worst, reference.shape))


def _are_one(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether these are the same values in the same place: a gradient that both sides hand on, say."""
    first, second = one.__array_interface__, other.__array_interface__
    return first["data"][0] == second["data"][0] and one.strides == other.strides and one.dtype == other.dtype


def greatest_relative(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    """The greatest relative difference of a port's arrays to the reference's beside them; 0.0 of none."""
    return max((difference(port, reference).relative for port, reference in pairs), default=0.0)


def _real_pairs(array: np.ndarray) -> np.ndarray:
    return components(array) if array.dtype.kind == "c" else array


def _sum_of_squares_between(ours: np.ndarray, theirs: np.ndarray) -> float:
    # Not a dot product: BLAS would wake its threads for every piece.
    return sum((float(np.einsum("i,i->", part, part)) for part in _pieces_between(ours, theirs)), 0.0)


def measured_between(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Greatest absolute difference of two flat arrays, and the sum of its squares; NaN if one is NaN or infinite."""
    greatest, squares = 0.0, 0.0
    for part in _pieces_between(ours, theirs):
        squares += float(np.einsum("i,i->", part, part))
        greatest = max(greatest, float(part.max()), -float(part.min()))
    return greatest, squares


def _pieces_between(ours: np.ndarray, theirs: np.ndarray) -> Iterator[np.ndarray]:
    """The difference in pieces that stay in the cache, so that large arrays are read once and not copied."""
    piece = np.empty(min(_PIECE, ours.size), np.result_type(ours, theirs))
    for start in range(0, ours.size, _PIECE):
        part = piece[: min(_PIECE, ours.size - start)]
        np.subtract(ours[start : start + _PIECE], theirs[start : start + _PIECE], out=part)
        yield part


def apart(port: np.ndarray, value: np.ndarray | None, scale: float) -> tuple[float, float]:
    """Greatest difference, and the mean square of the difference relative to `scale`; ten for what has none."""
    if value is None or port.shape != value.shape:
        return 10.0 * scale, 100.0 if scale else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        greatest, squares = measured_between(port.reshape(-1), value.reshape(-1))
        if math.isfinite(squares) and (squares or not greatest):
            return greatest, min(math.sqrt(squares / max(port.size, 1)) / scale, 10.0) ** 2 if scale else 0.0
        same = (port == value) | (np.isnan(port) & np.isnan(value))
        greatest = float(np.where(same, 0.0, np.abs(port - value)).max(initial=0.0))
        relative = np.nan_to_num((port - value) / scale, nan=10.0, posinf=10.0, neginf=10.0) if scale else np.zeros(1)
        return greatest if np.isfinite(greatest) else 10.0 * scale, float(min(np.mean(np.square(relative)), 100.0))


def share_lacking(port: np.ndarray, value: np.ndarray | None, allowed: float) -> float:
    """Share of the port's values other than 0 that `value` does not have; of a sample where there are many."""
    if value is None or port.shape != value.shape:
        return 1.0
    step = max(1, port.size // _COUNTED)
    ours, theirs = port.reshape(-1)[::step], value.reshape(-1)[::step]
    with np.errstate(invalid="ignore", over="ignore"):
        right = (ours == theirs) | (np.abs(ours - theirs) <= allowed)
    told = ours != 0.0
    return float(np.mean(~right[told])) if told.any() else 0.0


def greatest_finite(array: np.ndarray) -> float:
    """Greatest magnitude of the finite elements; 0 if there are none."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def estimated_scale(array: np.ndarray) -> float:
    """Root mean square of a sample of the elements, or of all if the sample is zero."""
    flat = array.reshape(-1)
    return quick_root_mean_square(flat[:: max(1, flat.size // _ESTIMATED)]) or quick_root_mean_square(flat)


def quick_root_mean_square(array: np.ndarray) -> float:
    """Root mean square in the array's own precision, without a copy; 0 if there are no elements."""
    flat = _real_pairs(array).reshape(-1)
    return float(np.dot(flat, flat) / flat.size) ** 0.5 if flat.size else 0.0


def root_mean_square(array: np.ndarray) -> float:
    """Root mean square of real numbers in float64; 0 if there are no elements."""
    values = np.asarray(array, dtype=np.float64)
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


def distance(one: np.ndarray | None, other: np.ndarray | None) -> float:
    """Root mean square of the difference; infinite where shapes differ, one is missing, or NaN meets a number."""
    if one is None or other is None or one.shape != other.shape:
        return float("inf")
    with np.errstate(invalid="ignore", over="ignore"):
        first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        found = root_mean_square(np.where(same, 0.0, first - second))
    return found if np.isfinite(found) else float("inf")


def is_rounded_sample(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of data in float differ by no more than what float32 makes of images.

    A resampling rounds its positions as well as its values: some elements differ by more than their own rounding.
    """
    allowed = ROUNDED_SAMPLE * root_mean_square(one)
    with np.errstate(invalid="ignore", over="ignore"):
        return distance(one, other) <= allowed and bool((np.abs(one - other) <= _OF_ONE_ELEMENT * allowed).all())


def sample_of(array: np.ndarray, count: int = _SAMPLES) -> list[float]:
    """A few elements at even distances, to recognise the same values elsewhere."""
    flat = _real_pairs(array).reshape(-1)
    chosen = flat[:: max(1, flat.size // count)][:count].astype(np.float64)
    found: list[float] = np.where(np.isfinite(chosen), chosen, 0.0).tolist()
    return found


def distance_of_samples(port: list[float], reference: list[float]) -> float:
    """Relative distance of two tensors, estimated from their samples."""
    ours, theirs = np.array(port), np.array(reference)
    if ours.shape != theirs.shape or not ours.size:
        return np.inf
    scale, apart = quick_root_mean_square(theirs), quick_root_mean_square(ours - theirs)
    return apart / scale if scale > 0 else (np.inf if apart else 0.0)


def same_sample(first: list[float], second: list[float], tolerance: float = 1e-6) -> bool:
    """Whether two samples agree up to rounding."""
    if len(first) != len(second):
        return False
    scale = max((abs(value) for value in (*first, *second)), default=0.0)
    return all(abs(a - b) <= tolerance * scale for a, b in zip(first, second, strict=True))


def _index(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(position, shape))


def _with_infinities(port: np.ndarray, reference: np.ndarray) -> Difference:
    """With NaN, infinities or overflow: infinities must agree in their positions, and the rest is measured."""
    kinds = [
        np.where(np.isnan(a), 2, np.where(np.isposinf(a), 1, np.where(np.isneginf(a), -1, 0)))
        for a in (port, reference)
    ]
    wrong = kinds[0] != kinds[1]
    if wrong.any():
        text = f"{int(wrong.sum())} elements are NaN or infinite on one side only"
        return Difference(np.inf, worst_index=_index(int(wrong.argmax()), reference.shape), text=text)
    finite = kinds[1] == 0
    if not finite.all():
        return difference(port[finite], reference[finite])
    # Numbers whose squares are too large, as the least one that masks are made of.
    found = difference(port / _OF_SQUARES, reference / _OF_SQUARES)
    sizes = {name: getattr(found, name) * _OF_SQUARES for name in ("rms", "max_abs", "reference_rms")}
    return dataclasses.replace(found, **sizes)
