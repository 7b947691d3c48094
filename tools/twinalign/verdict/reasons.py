"""Why a tensor whose floor was measured is aligned or not, in words."""

from collections.abc import Iterable

from twinalign.verdict.allowances import ALWAYS, Allowance
from twinalign.verdict.excuses import Pending, advice
from twinalign.verdict.noise import Noise
from twinalign.verdict.results import TensorVerdict

FLOAT32_CONSTANT = 1e-7
"""A smaller difference may come from a float32 constant, which an allowance can name."""
_NEAR = 100.0
"""An allowance that is exceeded by more has nothing to do with the difference."""


def float64_reason(tensor: TensorVerdict) -> str:
    """For a tensor whose float64 runs differ by more than rounding."""
    share = f"{tensor.fp64_rel:.2g} relative" if tensor.fp64_rel is not None else f"{tensor.fp64_max_abs:.2g}"
    reason = (
        f"the float64 runs differ by {share}, {tensor.fp64_ratio:.2g} times what rounding explains: "
        "the two compute different things"
    )
    if tensor.fp64_rel is not None and tensor.fp64_rel <= FLOAT32_CONSTANT:
        reason += " (as small as the error of a float32 constant; if that is the cause, allow it by name)"
    return reason


def missed_allowance(name: str, allowances: Iterable[Allowance], group: Noise) -> str:
    """Which allowance comes closest to a difference of the float64 runs, and by what it is exceeded; or nothing."""
    missed = []
    for allowance in allowances:
        rms, worst = allowance.limit(group)
        if allowance.id not in ALWAYS and allowance.covers(name) and rms and worst:
            times, criterion = max((group.high.rms / rms, "RMS"), (group.high.greatest / worst, "the worst element"))
            missed.append((times, f"; {times:.2g} times what {allowance.id} allows in {criterion}"))
    times, text = min(missed, default=(_NEAR, ""))
    return text if times < _NEAR else ""


def over_reason(item: Pending, too_few: bool, criterion: str) -> str:
    """For a tensor with more error than the reference's rounding explains; `criterion` is over its limit."""
    tensor = item.tensor
    reason = f"the error is {tensor.noise_ratio:.3g} times the reference's own rounding"
    reason += f" (worst element {tensor.noise_ratio_worst:.3g} times), {criterion}"
    if item.has_arbiter:
        reason += "; the float64 runs agree, so only the lower precision is computed less accurately"
    elif too_few:
        reason += f"; {tensor.size} elements are too few to decide: {advice(item.basis)}"
    return reason


def passing_reason(item: Pending) -> str:
    """For a tensor that passes."""
    tensor = item.tensor
    parts = []
    in_float64 = tensor.allowed and (tensor.fp64_ratio or 0.0) > 1.0
    if in_float64:
        parts.append(f"the float64 runs differ by {tensor.fp64_rel:.2g} relative, allowed as {tensor.allowed}")
    elif item.has_arbiter:
        parts.append(f"the float64 runs agree ({tensor.fp64_rel or 0.0:.2g} relative)")
    floor = "reference's own rounding" if item.basis != "repeat" else "reference's own change when it is repeated"
    if tensor.noise_ratio:
        known = f", allowed as {tensor.allowed}" if tensor.allowed and not in_float64 else ""
        parts.append(f"the error is {tensor.noise_ratio:.2g} times the {floor}{known}")
    if tensor.structural_zeros:
        parts.append(f"{tensor.structural_zeros} elements are zero in exact arithmetic")
    return "; ".join(parts) or "identical"
