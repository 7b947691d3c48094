"""The result of the search for a cause, and the phases in which faults show."""

import dataclasses
from typing import Any

PHASES = ("forward", "backward", "state", "optimizer", "data", "metric", "train", "ranks", "initial")
"""Where a fault shows: outputs, gradients, buffers and moving averages, updates, the input pipeline, the metric,
training curves, the work of several ranks, freshly built models."""


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A proven cause: applied to the reference, it reproduces the port's wrong values.

    Attributes:
        id: the cause's id in the registry.
        text: the cause in one sentence, with the values that reproduced it.
        confirmed: always true: causes that do not reproduce the port are not stated.
        evidence: the error before (`unexplained_error`) and after (`remaining_error`), for a layer relative to the size
            of the values, for another component relative to the error before; and further facts.
    """

    id: str
    text: str
    confirmed: bool = True
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
