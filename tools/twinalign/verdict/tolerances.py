"""The decision on a tensor by relative and absolute tolerances, where nothing measures its rounding."""

import functools
import math

import numpy as np

from twinalign.files.recordings import real_view
from twinalign.verdict.cache_pieces import as_type, in_memory_order, pieces
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, TensorVerdict
from twinalign.verdict.statistics import Statistics, measure

_TOLERANCES = {
    # torch.testing.assert_close's table (documentation, "rtol and atol ... dtype"); exact for integers and booleans.
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
_EIGHT_BIT = (2**-3, 1e-5)
_MOST = 1e-3
_PIECE = 8192
_ALIKE = 0.9
"""Cosine from which a tensor resembles the reference; that of independent rounding errors is near 0."""


@functools.cache
def tolerances_of(dtype: np.dtype) -> tuple[float, float]:
    """Relative and absolute tolerance of a dtype."""
    return _TOLERANCES.get(dtype.name, _EIGHT_BIT if dtype.name.startswith("float8") else (0.0, 0.0))


def by_tolerance(tensor: TensorVerdict, whose: str, basis: str = "tolerance") -> None:
    """Decide by the elements that the tensor's `rtol` and `atol`, which are `whose`, do not cover."""
    limits = f"{whose} (rtol {tensor.rtol:g}, atol {tensor.atol:g})"
    tensor.basis = basis
    if tensor.mismatched:
        share = f"{tensor.mismatched} of {tensor.size} elements ({100 * (tensor.mismatched_share or 0):.3g}%)"
        tensor.verdict, tensor.reason = DIVERGED, f"{share} are outside {limits}"
    else:
        tensor.verdict, tensor.reason = ALIGNED, f"within {limits}"


def by_own_size(tensor: TensorVerdict, found: Statistics, reference: np.ndarray, reproduced: np.ndarray) -> None:
    """Decide by the dtype's tolerances, the absolute one at most `_MOST` of the root mean square of the reference.

    torch's absolute tolerances are made for values around 1: a tensor of 1e-7 would pass with the wrong sign. One that
    is below them as a whole and does not resemble the reference is inconclusive: rounding of zeros looks like this.
    """
    usual = tensor.atol or 0.0
    size = _root_mean_square(reference, enough=usual / _MOST)
    whose = f"the tolerances of {reference.dtype}"
    if usual > _MOST * size:
        tensor.atol = float(f"{_MOST * size:.3g}")
        whose += f", limited to {_MOST} of its own size, {size:.2g}"
        if found.max_abs > tensor.atol:
            again = measure(reference, reproduced, tensor.rtol or 0.0, tensor.atol, everything=False)
            tensor.mismatched, tensor.mismatched_share = again.mismatched, again.mismatched / reference.size
    by_tolerance(tensor, whose)
    if tensor.mismatched and max(found.max_abs, size) <= usual and abs(found.cosine or 0.0) < _ALIKE:
        tensor.verdict = INCONCLUSIVE
        tensor.reason += f"; below {usual:g} it may be rounding of zeros: float64 runs (--ref64, --paddle64) can tell"


def _root_mean_square(array: np.ndarray, enough: float) -> float:
    """Over the finite elements; infinite once it is known to be at least `enough`, so that little of it is read."""
    parts = real_view(array) if array.dtype.kind == "c" else array
    (flat,), _ = in_memory_order(parts)
    squares, finite = 0.0, 0
    for piece in pieces(flat.size, _PIECE, (flat,)):
        values = as_type(flat[piece], np.dtype(np.float64), "first")
        values = values[np.isfinite(values)]
        squares, finite = squares + float(np.dot(values, values)), finite + values.size
        if squares >= enough**2 * array.size:
            return math.inf
    return math.sqrt(squares * flat.size / (finite * array.size))
