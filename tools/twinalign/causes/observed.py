"""What the case observes of the reference's model, under examination: code that its `forward` does not reach."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign.causes.component import Component, explain
from twinalign.replay.observed import DRAWS, observed
from twinalign.replay.training import floors_of, read_curves


class ObservedSubject(Component):
    """`port`, `reference` and `floors`: `DRAW.NAME` → array."""

    def __init__(self, worker: Any, weights: Mapping[str, Any], reference: str, port: str) -> None:
        self._worker, self._weights = worker, weights
        self.reference, moved = read_curves(reference)
        self.port, _ = read_curves(port)
        self.floors = floors_of(self.reference, moved)

    def run(self) -> Mapping[str, np.ndarray]:
        return observed(self._worker, self._weights)

    def begins(self) -> Mapping[str, np.ndarray]:
        return observed(self._worker, self._weights, draws=DRAWS[:1])


def explain_observed(worker: Any, weights: Mapping[str, Any], reference: str, port: str) -> dict[str, Any]:
    """Why the port's values differ from the reference's, from files of `record_observed`; lines of the port say so."""
    return explain(ObservedSubject(worker, weights, reference, port), "metric")
