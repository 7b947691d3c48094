"""How long two trainings stay one: the steps before their curves part, and how fast they do."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from twinalign.verdict.results import plain
from twinalign.verdict.trajectory import growth_of

TOLERANCES = (1e-6, 1e-4, 1e-2)
"""Relative differences at which curves count as parted; from the last on nobody would call them the same curve."""


@dataclasses.dataclass(frozen=True)
class Horizon:
    """Of one curve in one precision.

    Attributes:
        curve: its name.
        precision: float32 or float64.
        steps: that were compared.
        tolerances: relative differences that are asked for.
        port: for each tolerance, the steps before the port is further than that from the reference; `steps` if never.
        reference: likewise of the reference's moved copy.
        port_most, reference_most: greatest difference, relative to the reference's greatest magnitude.
        port_growth, reference_growth: factor by which either difference grows in a step, None where it does not.
    """

    curve: str
    precision: str
    steps: int
    tolerances: tuple[float, ...]
    port: tuple[int, ...]
    reference: tuple[int, ...] | None
    port_growth: float | None
    reference_growth: float | None
    port_most: float
    reference_most: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def sentence(self) -> str:
        """In words: at the first tolerance that either exceeds, or the last."""
        both = [self.port, self.reference or self.port]
        at = next((i for i in range(len(self.tolerances)) if min(side[i] for side in both) < self.steps), -1)
        text = f"within {self.tolerances[at]:.0e} for {_of(self.port[at], self.steps)} steps"
        if self.reference is not None:
            text += f", the reference's moved copy for {_of(self.reference[at], self.steps)}"
        return text


def _of(count: int, steps: int) -> str:
    return f"all {steps}" if count == steps else f"{count} of {steps}"


def steps_within(reference: np.ndarray, other: np.ndarray, tolerance: float) -> int:
    """Steps before the relative difference, of two curves of one length, first exceeds the tolerance.

    A step at which both are zero is one at which they agree; NaN agrees with nothing.
    """
    with np.errstate(invalid="ignore"):
        apart = ~(np.abs(other - reference) <= tolerance * np.maximum(np.abs(reference), np.abs(other)))
    return int(apart.argmax()) if apart.any() else len(reference)


def horizon(
    curve: str, precision: str, reference: np.ndarray, port: np.ndarray, moved: np.ndarray | None
) -> Horizon | None:
    """The horizon of one curve; None where the two have no same length, or no step.

    Args:
        curve: its name.
        precision: that it was recorded in.
        reference: a value a step.
        port: likewise.
        moved: of the reference's moved copy.
    """
    if reference.shape != port.shape or reference.ndim != 1 or not reference.size:
        return None
    moved = moved if moved is not None and moved.shape == reference.shape else None
    return Horizon(
        curve,
        precision,
        len(reference),
        TOLERANCES,
        tuple(steps_within(reference, port, tolerance) for tolerance in TOLERANCES),
        None if moved is None else tuple(steps_within(reference, moved, tolerance) for tolerance in TOLERANCES),
        growth_of(reference, port),
        None if moved is None else growth_of(reference, moved),
        _most(reference, port),
        None if moved is None else _most(reference, moved),
    )


def _most(reference: np.ndarray, other: np.ndarray) -> float:
    finite = np.isfinite(reference) & np.isfinite(other)
    scale = float(np.abs(reference[finite]).max(initial=0.0)) or 1.0
    return float(np.abs(other - reference)[finite].max(initial=0.0)) / scale
