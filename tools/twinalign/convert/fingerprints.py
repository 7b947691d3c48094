"""Tell tensors of two frameworks apart by a few numbers each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def fingerprint(array: np.ndarray) -> dict[str, Any]:
    """Shape, scale (root mean square) and three projections of an array, computed in float64.

    The projections are the mean, the mean magnitude and the mean product with a fixed wave, which any change of
    order disturbs.
    """
    flat = np.asarray(array, np.float64).reshape(-1)
    if not flat.size:
        return {"shape": list(array.shape), "scale": 0.0, "numbers": [0.0, 0.0, 0.0]}
    wave = np.cos(np.arange(flat.size) * 0.7390851 + 0.5)
    return {
        "shape": list(array.shape),
        "scale": float(np.sqrt(np.mean(flat * flat))),
        "numbers": [float(flat.mean()), float(np.abs(flat).mean()), float(np.mean(flat * wave))],
    }


def agree(first: Mapping[str, Any], second: Mapping[str, Any], tolerance: float = 1e-6) -> bool:
    """Whether two fingerprints are of the same tensor: equal shapes, projections apart by rounding only."""
    if list(first["shape"]) != list(second["shape"]):
        return False
    scale = max(first["scale"], second["scale"])
    if not np.isfinite(scale):
        return str(first["numbers"]) == str(second["numbers"])
    # Projections are means over n numbers of that scale; even a small bias is far above float64's rounding.
    return all(abs(a - b) <= tolerance * scale for a, b in zip(first["numbers"], second["numbers"], strict=True))


def all_agree(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> bool:
    """Whether two lists of fingerprints agree one by one."""
    return len(first) == len(second) and all(agree(a, b) for a, b in zip(first, second, strict=True))
