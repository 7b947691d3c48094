"""Values that are zero in exact arithmetic, and what an optimizer makes of them: docs/verdict.md derives it."""

import re
from collections.abc import Sequence

import numpy as np

from twinalign.verdict.allowances import Allowance
from twinalign.verdict.excuses import Pending
from twinalign.verdict.noise import Distance

_STATE = re.compile(r"step(\d{1,6})\.(buffer|parameter)\.(.+)")
_OF_ONE = 0.01
"""How far over 1, or under 0, the share of a bias in a running mean may be fitted."""
_LEAST_MOVED = 1e-3
"""Of the greatest move of a bias."""
_Masks = dict[str, list[tuple[int, str, np.ndarray]]]


def quantity_of(name: str) -> str:
    """What a recording says of many tensors: `step0.gradient` of `step0.gradient.layer.bias`."""
    return ".".join(name.split(".")[:2]) if name.count(".") > 1 else ""


def rounding_by_quantity(pending: Sequence[Pending]) -> dict[str, Distance]:
    """Median over the tensors of a quantity of how far the reference is from its float64 run, absolute."""
    found: dict[str, list[float]] = {}
    for item in pending:
        if (rms := item.noise.ordinary.reference.rms) > 0 and quantity_of(item.tensor.name):
            found.setdefault(quantity_of(item.tensor.name), []).append(rms)
    medians = {quantity: float(np.median(values)) for quantity, values in found.items()}
    return {quantity: Distance(rms**2, rms, 1) for quantity, rms in medians.items()}


def greatest_by_quantity(pending: Sequence[Pending]) -> dict[str, float]:
    """The greatest magnitude in the reference's float64 run among all tensors of a quantity."""
    found: dict[str, float] = {}
    for item in pending:
        if quantity := quantity_of(item.tensor.name):
            found[quantity] = max(found.get(quantity, 0.0), item.noise.ordinary.truth.greatest)
    return found


def allow_floored(item: Pending, allowances: Sequence[Allowance], greatest: float) -> bool:
    """Whether a floor under values that go on to nearly zero explains a difference; its numbers then say nothing.

    A floor gives where the reference has next to nothing: a port that has nothing at all has another reason.
    """
    ports, tensor = [item.arrays[at] for at in (1, 3) if at < len(item.arrays)], item.tensor
    groups = (item.noise.ordinary, item.noise.zero, item.noise.blown)
    apart = max(max(group.high.greatest, group.reproduced.greatest) for group in groups)
    for allowance in allowances:
        most = allowance.of_greatest * greatest
        if most and apart <= most and allowance.covers(tensor.name) and any(port.any() for port in ports):
            tensor.allowed, tensor.noise_ratio, tensor.noise_ratio_worst = allowance.id, None, None
            tensor.fp64_rel = tensor.fp64_ratio = None
            quantity = quantity_of(tensor.name)
            tensor.reason = (
                f"the sides differ by {apart / greatest:.2g} of the greatest {quantity}, allowed as {allowance.id}"
            )
            return True
    return False


def zeros_of_gradients(pending: Sequence[Pending]) -> _Masks:
    """What `_endings` leaves of a gradient's name -> place, name and flat mask of its zeros in exact arithmetic."""
    found: _Masks = {}
    for place, item in enumerate(pending):
        mask, name = item.noise.zero_mask, item.tensor.name
        if mask is not None and "grad" in name.lower():
            for ending in _endings(name):
                found.setdefault(ending, []).append((place, name, mask))
    return found


def inherited_zeros(item: Pending, zeros: _Masks) -> np.ndarray | None:
    """Flat mask of zeros in this tensor's gradient, which an optimizer may have blown up."""
    name, size = item.tensor.name, item.arrays[0].size
    masks = [entry for ending in _endings(name) for entry in zeros.get(ending, ())]
    found = [(place, mask) for place, other, mask in masks if other != name and mask.size == size]
    return min(found, key=lambda entry: entry[0])[1] if found else None


def _endings(name: str) -> list[str]:
    """What is left of a dotted name without its first part and without its first two, each with how many went."""
    parts = name.split(".", 2)
    return [f"{count} {'.'.join(parts[count:])}" for count in range(1, len(parts))]


def taken_over(item: Pending, pending: Sequence[Pending]) -> tuple[np.ndarray, str] | None:
    """What a running mean takes over of a bias that an optimizer has moved by rounding.

    The gradient of a bias before a batch norm is zero in exact arithmetic. Adam makes steps of the rounding that is
    left; the norm takes them away again, but its running mean keeps a share of each step before.

    Returns:
        By what the port's float64 run, in its shape, differs from the reference's for that reason, and the bias; the
        share of each step's difference is fitted. None if no bias of the same size fits.
    """
    match = _STATE.fullmatch(item.tensor.name)
    if match is None or match[2] != "buffer" or not item.has_arbiter:
        return None
    apart = (item.arrays[3] - item.arrays[2]).ravel()
    moves: dict[str, list[np.ndarray]] = {}
    for other in pending:
        state = _STATE.fullmatch(other.tensor.name)
        if state is None or state[2] != "parameter" or int(state[1]) >= int(match[1]):
            continue
        if other.has_arbiter and other.noise.blown.count == other.arrays[2].size == apart.size:
            moves.setdefault(state[3], []).append((other.arrays[3] - other.arrays[2]).ravel())
    found = []
    for name, of_steps in moves.items():
        columns = np.stack(of_steps, axis=1)
        # A step that moved next to nothing would be fitted to other differences.
        shares = np.linalg.lstsq(columns, apart, rcond=_LEAST_MOVED)[0]
        if 2 * len(shares) <= apart.size and (np.abs(shares - 0.5) <= 0.5 + _OF_ONE).all():
            fitted = columns @ shares
            found.append((float(np.square(apart - fitted).sum()), name, fitted))
    if not found:
        return None
    _, name, fitted = min(found, key=lambda fit: fit[:2])
    return fitted.reshape(item.arrays[3].shape), name
