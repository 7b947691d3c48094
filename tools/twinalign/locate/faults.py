"""What `twinalign locate` finds: faults, each at one place, with its proven cause where there is one."""

from __future__ import annotations

import dataclasses
from typing import Any

PHASES = ("forward", "backward", "state", "optimizer", "data", "metric", "train", "ranks")
"""Where a fault shows: outputs, gradients, buffers and moving averages, the update, the input pipeline, the metric, the
curves of a training, what several ranks do together."""


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A cause, confirmed: applied to the reference, it reproduces the port's wrong values.

    Attributes:
        id: the hypothesis's id in the registry.
        text: the cause in one sentence, with the values that reproduced it.
        confirmed: whether the port's values were reproduced; what is not confirmed is not stated.
        evidence: numbers of the proof: the distance before (`unexplained_error`) and after (`remaining_error`), of a
            layer relative to the size of the values, of another component to the difference that was to be explained;
            and what else the hypothesis has to say.
    """

    id: str
    text: str
    confirmed: bool = True
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """In the form of `locate --json`."""
        return dataclasses.asdict(self)


@dataclasses.dataclass
class Fault:
    """One wrong place of the port.

    Attributes:
        reference_layer: path of the layer in the reference (`""` is the model itself), or a component: `loss`,
            `optimizer`, `schedule`, `dataset.SPLIT`, `metric`, `train`, `ranks.PART` with one of `observing.PARTS`.
        paddle_layer: likewise in the port.
        phase: one of `PHASES`.
        explanation: the proven cause, None where no hypothesis reproduces the port.
        evidence: what is known: which tensors differ, how far, layer classes, inherited error.
    """

    reference_layer: str
    paddle_layer: str
    phase: str
    explanation: Explanation | None = None
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """In the form of `locate --json`."""
        return dataclasses.asdict(self)
