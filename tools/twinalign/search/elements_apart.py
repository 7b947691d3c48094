"""Which elements of two arrays differ."""

from typing import Any

import numpy as np


def elements_apart(one: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    """The first element that differs, both values, the share of elements that differ and the largest difference."""
    if one.shape != other.shape:
        return {"shapes": {"reference": list(one.shape), "port": list(other.shape)}}
    difference = np.abs(one.astype(np.float64) - other.astype(np.float64))
    found = np.argwhere(difference > 0)
    if not len(found):
        return {}
    first = tuple(int(i) for i in found[0])
    return {
        "first_difference": list(first),
        "values": {"reference": float(one[first]), "port": float(other[first])},
        "share_differing": len(found) / one.size,
        "largest_difference": float(difference.max()),
        "dtypes": {"reference": str(one.dtype), "port": str(other.dtype)},
    }
