"""How many steps before the curves of two trainings depart, and how fast."""

import dataclasses

import numpy as np

from twinalign.verdict.results import JsonFields
from twinalign.verdict.trajectory import greatest, growth_of

TOLERANCES = (1e-6, 1e-4, 1e-2)
"""Relative differences at which curves count as departed; beyond the last, nobody would call them the same curve."""


@dataclasses.dataclass(frozen=True)
class Horizon(JsonFields):
    """How long a curve stays the same in a precision; the weights of the reference's copy differ in the last bit."""

    curve: str
    precision: str
    steps: int
    tolerances: tuple[float, ...]
    port: tuple[int, ...]
    """For each tolerance, the steps before the port's relative difference exceeds it; `steps` if never."""
    reference: tuple[int, ...] | None
    """The same for the reference's copy."""
    port_growth: float | None
    """Factor per step by which the difference grows, None if it does not."""
    reference_growth: float | None
    port_most: float
    """Greatest difference, relative to the reference's greatest magnitude."""
    reference_most: float | None

    def sentence(self) -> str:
        """In words: at the first tolerance that either exceeds, or the last."""
        both = [self.port, self.reference or self.port]
        at = next((i for i in range(len(self.tolerances)) if min(side[i] for side in both) < self.steps), -1)
        text = f"within {self.tolerances[at]:.0e} for {_of(self.port[at], self.steps)} steps"
        if self.reference is not None:
            text += f", the reference's copy with changed last bits for {_of(self.reference[at], self.steps)}"
        return text


def _of(count: int, steps: int) -> str:
    return f"all {steps}" if count == steps else f"{count} of {steps}"


def steps_within(reference: np.ndarray, other: np.ndarray, tolerance: float) -> int:
    """Steps before the relative difference of two curves of one length first exceeds the tolerance.

    Two zeros agree; NaN agrees with nothing.
    """
    with np.errstate(invalid="ignore"):
        apart = ~(np.abs(other - reference) <= tolerance * np.maximum(np.abs(reference), np.abs(other)))
    return int(apart.argmax()) if apart.any() else len(reference)


def horizon(
    curve: str, precision: str, reference: np.ndarray, port: np.ndarray, moved: np.ndarray | None
) -> Horizon | None:
    """The horizon of a curve, one value per step; `moved` is the reference's copy. None if lengths differ or are 0."""
    if reference.shape != port.shape or reference.ndim != 1 or not reference.size:
        return None
    within, growth, most = _apart(reference, port)
    copy = (None, None, None) if moved is None or moved.shape != reference.shape else _apart(reference, moved)
    return Horizon(curve, precision, len(reference), TOLERANCES, within, copy[0], growth, copy[1], most, copy[2])


def _apart(reference: np.ndarray, other: np.ndarray) -> tuple[tuple[int, ...], float | None, float]:
    """Steps within each tolerance, growth, and greatest relative difference."""
    finite = np.isfinite(reference) & np.isfinite(other)
    most = greatest((other - reference)[finite]) / (greatest(reference[finite]) or 1.0)
    return tuple(steps_within(reference, other, at) for at in TOLERANCES), growth_of(reference, other), most
