"""Recognise a tensor in both frameworks by a few numbers computed from it."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

EQUAL = 1e-6
"""Relative to a tensor's scale: what rounding in float64, and constants in float32, change."""
NEARLY = 1e-4
"""What another epsilon changes; the projections of two different tensors are rarely as close."""

_KEPT_WAVE = 1 << 22
"""Most elements of a wave that is kept for the next tensor."""


def fingerprint(array: np.ndarray) -> dict[str, Any]:
    """Shape, scale (root mean square) and four projections of an array, computed in float64.

    The projections are the mean, the mean magnitude, the mean signed square over the scale, and the mean product with a
    fixed wave, which alone changes with the order of the elements.
    """
    flat = np.asarray(array, np.float64).reshape(-1)
    if not flat.size:
        return {"shape": list(array.shape), "scale": 0.0, "numbers": [0.0, 0.0, 0.0, 0.0]}
    wave = _known_wave(flat.size) if flat.size <= _KEPT_WAVE else _wave(flat.size)
    size = np.abs(flat)
    scale = float(np.sqrt(np.mean(flat * flat)))
    means = flat.mean(), size.mean(), np.mean(flat * size) / (scale or 1.0), np.mean(flat * wave)
    return {"shape": list(array.shape), "scale": scale, "numbers": [float(mean) for mean in means]}


def _wave(size: int) -> np.ndarray:
    return np.cos(np.arange(size) * 0.7390851 + 0.5)


# Layers that follow each other have tensors of one size, and the cosine takes longer than all else here.
_known_wave = functools.lru_cache(maxsize=2)(_wave)


def agree(first: Mapping[str, Any], second: Mapping[str, Any], tolerance: float = EQUAL) -> bool:
    """Whether two fingerprints belong to the same tensor, equal up to rounding and to its layout.

    Tensors of one shape must have the same order, others (reshaped, channels last, a folded batch) as many elements, or
    one be the other repeated along axes where that has length 1 (positions of one sample, or of each in the batch).
    """
    shapes = list(first["shape"]), list(second["shape"])
    if math.prod(shapes[0]) != math.prod(shapes[1]) and not _repeats(*sorted(shapes, key=math.prod)):
        return False
    # In another shape the elements may be in another order.
    left, right = (given["numbers"][: None if shapes[0] == shapes[1] else -1] for given in (first, second))
    scale = max(first["scale"], second["scale"])
    if not np.isfinite(scale):
        return str(left) == str(right)
    # Projections are means over n numbers of that scale; even a small bias is far above float64's rounding.
    return all(abs(a - b) <= tolerance * scale for a, b in zip(left, right, strict=True))


def _repeats(small: list[int], large: list[int]) -> bool:
    """Whether a tensor of the first shape broadcasts to the second."""
    padded = [1] * (len(large) - len(small)) + small
    return len(padded) == len(large) and all(size in (1, other) for size, other in zip(padded, large, strict=True))


def all_agree(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]], tolerance: float = EQUAL
) -> bool:
    """Whether two lists of fingerprints agree one by one; a tensor given several times in a row counts once."""
    left, right = _each_once(first), _each_once(second)
    return len(left) == len(right) and all(agree(a, b, tolerance) for a, b in zip(left, right, strict=True))


def _each_once(given: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    # Attention is called with one tensor in paddle, and three times with that one in torch.
    return [one for one, before in zip(given, [None, *given], strict=False) if before is None or not agree(one, before)]
