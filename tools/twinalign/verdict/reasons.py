"""Why a tensor whose floor was measured is aligned or not, in words."""

from __future__ import annotations

from twinalign.verdict.kinks import Pending
from twinalign.verdict.results import TensorVerdict

_CONSTANT = 1e-7
"""A difference as small as this may be a float32 constant's, which an allowance can name."""


def float64_reason(tensor: TensorVerdict) -> str:
    """Of a tensor whose float64 runs differ by more than rounding."""
    share = f"{tensor.fp64_rel:.2g} relative" if tensor.fp64_rel is not None else f"{tensor.fp64_max_abs:.2g}"
    reason = (
        f"the float64 runs differ by {share}, {tensor.fp64_ratio:.2g} times what rounding explains: "
        "the two compute different things"
    )
    if tensor.fp64_rel is not None and tensor.fp64_rel <= _CONSTANT:
        reason += " (as small as a constant kept in float32; if that is the cause, allow it by name)"
    return reason


def over_reason(item: Pending, too_few: bool) -> str:
    """Of a tensor that is further from the truth than the reference's rounding explains; `too_few` to decide by."""
    tensor = item.tensor
    worst = f"{tensor.noise_ratio:.3g} times (worst element {tensor.noise_ratio_worst:.3g} times)"
    reason = f"{worst} as far from the truth as the reference's own rounding"
    if item.has_arbiter:
        reason += "; the float64 runs agree, so it is the lower precision that is computed worse"
    elif too_few:
        reason += f"; {tensor.size} elements are too few to tell: record the reproduction in float64 as well"
    return reason


def passing_reason(item: Pending) -> str:
    """Of a tensor that passes."""
    tensor = item.tensor
    parts = []
    in_float64 = tensor.allowed and (tensor.fp64_ratio or 0.0) > 1.0
    if in_float64:
        parts.append(f"the float64 runs differ by {tensor.fp64_rel:.2g} relative, allowed as {tensor.allowed}")
    elif item.has_arbiter:
        parts.append(f"the float64 runs agree ({tensor.fp64_rel or 0.0:.2g} relative)")
    floor = "reference's own rounding" if item.basis != "repeat" else "reference's change in its repeat"
    if tensor.noise_ratio:
        known = f", allowed as {tensor.allowed}" if tensor.allowed and not in_float64 else ""
        parts.append(f"the error is {tensor.noise_ratio:.2g} times the {floor}{known}")
    if tensor.structural_zeros:
        parts.append(f"{tensor.structural_zeros} elements are zero in exact arithmetic")
    return "; ".join(parts) or "identical"
