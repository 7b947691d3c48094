"""Floating types and how finely they round."""

import functools

import numpy as np

EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
"""Distance from 1 to the next number, by precision."""


@functools.cache  # a dtype's name takes numpy longer than a pass over a small array
def epsilon_of(dtype: np.dtype) -> float:
    """Distance from 1 to the next number of a floating type (its components' for a complex one)."""
    name = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
    return EPSILONS.get(name, 2.0**-3 if name.startswith("float8") else 2.0**-52)


def measures_rounding(high: np.ndarray, reference: np.ndarray) -> bool:
    """Whether `high` can be the higher-precision run that measures the rounding in `reference`."""
    return high.shape == reference.shape and is_finer(high, reference)


def is_finer(high: np.ndarray, low: np.ndarray) -> bool:
    """Whether `high` has a finer floating type, or the finest, which float64 projections have on both sides."""
    if high.dtype.kind not in "fc" or low.dtype.kind in "iub" or (high.dtype.kind == "c") != (low.dtype.kind == "c"):
        return False
    return epsilon_of(high.dtype) < epsilon_of(low.dtype) or _is_finest(high.dtype)


@functools.cache
def _is_finest(dtype: np.dtype) -> bool:
    return dtype.name in ("float64", "complex128")
