"""Half precision without a framework: names of the types, and rounding of values to them."""

from collections.abc import Mapping

import numpy as np

from twinalign.errors import InputError
from twinalign.sides import HALVES


def rounded(arrays: Mapping[str, np.ndarray], dtype: str) -> dict[str, np.ndarray]:
    """Round floating-point arrays to a half precision; each array keeps its dtype, other arrays stay as they are.

    For any other dtype nothing changes. Both sides and their float64 runs start from the rounded values, so that only
    the computation differs.
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
    """The error if a framework cannot compute in a half precision on a CPU."""
    said = str(error).splitlines()[0].split(". ")[0]  # paddle's message has many lines
    return InputError(
        f"--precision {dtype} on a CPU: {said}; paddle has few kernels for it on a CPU: use --device gpu, or "
        "--precision both"
    )
