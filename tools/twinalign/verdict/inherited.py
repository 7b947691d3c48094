"""Elements that an optimizer blows up from gradients that are zero in exact arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twinalign.verdict.kinks import Pending


class InheritedZeros:
    """Finds the gradient that drives a tensor, by name.

    Names correspond when they are equal after at most two leading parts (`step0.gradient.x`, `step3.parameter.x`).

    Args:
        pending: All tensors of a recording, among them its gradients.
    """

    def __init__(self, pending: Sequence[Pending]) -> None:
        self._masks: dict[str, list[tuple[int, str, np.ndarray]]] = {}
        for order, item in enumerate(pending):
            mask, name = item.noise.zero_mask, item.tensor.name
            if mask is not None and "grad" in name.lower():
                for ending in _endings(name):
                    self._masks.setdefault(ending, []).append((order, name, mask))

    def of(self, item: Pending) -> np.ndarray | None:
        """Flat mask of the gradient that drives this tensor, where it has zeros that may have been blown up."""
        if not self._masks:
            return None
        name, size = item.tensor.name, item.arrays[0].size
        found = [
            (order, mask)
            for ending in _endings(name)
            for order, other, mask in self._masks.get(ending, ())
            if other != name and mask.size == size
        ]
        return min(found, key=lambda entry: entry[0])[1] if found else None


def _endings(name: str) -> list[str]:
    """What is left of a dotted name without its first part and without its first two, each with how many went."""
    parts = name.split(".", 2)
    return [f"{count} {'.'.join(parts[count:])}" for count in range(1, len(parts))]
