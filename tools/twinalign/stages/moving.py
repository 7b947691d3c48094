"""Values moved by as little as two frameworks may differ: what that does is the yardstick where nothing better is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from twinalign.halves import HALVES

_HALF_CHANGE = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
_FLOAT64_CHANGE = 1e-10


def moved_arrays(arrays: Iterable[tuple[str, np.ndarray]], dtype: str) -> Iterator[tuple[str, np.ndarray]]:
    """Name and array, floating-point ones moved: by one unit in the last place of `dtype`, in float64 by 10^-10.

    A change of 10^-10 is what a normalisation's epsilon that is stored in float32 leaves.
    """
    for name, array in arrays:
        if array.dtype.kind != "f":
            yield name, array
        elif dtype == "float64":
            yield name, array * (1 + _FLOAT64_CHANGE)
        elif dtype in HALVES:  # held in float32 here
            yield name, (array * (1 + _HALF_CHANGE[dtype])).astype(array.dtype)
        else:
            yield name, np.nextafter(array, np.array(np.inf, dtype=array.dtype))


def moved_at_random(arrays: Mapping[str, np.ndarray], draw: int) -> dict[str, np.ndarray]:
    """The arrays, each floating-point element moved up or down by one unit in the last place, as `draw` has it."""
    random = np.random.RandomState(draw)
    moved = {}
    for name, array in arrays.items():
        moved[name] = array
        if array.dtype.kind == "f":
            towards = np.where(random.randint(0, 2, array.shape, dtype=np.int8), np.inf, -np.inf)
            moved[name] = np.nextafter(array, towards.astype(array.dtype))
    return moved
