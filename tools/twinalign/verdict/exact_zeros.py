"""Values that are zero in exact arithmetic, and what an optimizer makes of them: docs/verdict.md derives it."""

from collections.abc import Sequence

import numpy as np

from twinalign.verdict.excuses import Pending
from twinalign.verdict.noise import Distance

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
