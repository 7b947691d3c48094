"""Half precision without a framework: the types' names, and values rounded to what they can hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from twinalign.errors import InputError

HALVES = ("float16", "bfloat16")


def rounded(arrays: Mapping[str, np.ndarray], dtype: str) -> dict[str, np.ndarray]:
    """Floating-point arrays rounded to what a half precision holds, in the types that they have; others as they are.

    For a dtype that is no half precision, all as they are. Both sides and their float64 runs start from such values, so
    that nothing but the arithmetic differs.
    """
    if dtype not in HALVES:
        return dict(arrays)
    return {name: _rounded(array, dtype) if array.dtype.kind == "f" else array for name, array in arrays.items()}


def _rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "float16":
        return array.astype(np.float16).astype(array.dtype)
    # bfloat16 is the upper half of a float32: round to nearest, ties to even. numpy has no such type.
    bits = array.astype(np.float32).reshape(-1).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):
        nearest = (bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)
    kept = np.where(np.isfinite(bits.view(np.float32)), nearest, bits)
    return kept.view(np.float32).reshape(array.shape).astype(array.dtype)


def no_kernels(dtype: str, error: Exception) -> InputError:
    """What to say where a framework cannot compute in a half precision on a CPU."""
    said = str(error).splitlines()[0].split(". ")[0]  # paddle goes on for lines
    return InputError(
        f"--precision {dtype} on a CPU: {said}; paddle has few kernels for it there: use --device gpu, or "
        "--precision both"
    )
