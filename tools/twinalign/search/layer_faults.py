"""Wrong layers of one part of a case, and what is known of its other layers."""

import dataclasses
import math
from typing import Any

from twinalign.search.faults import Fault
from twinalign.search.matching import Matching
from twinalign.sides import SIDES


@dataclasses.dataclass
class LayerFaults:
    """Wrong layers of one part of a case, and what is known of the others.

    Attributes:
        faults: in the order in which the layers run.
        inherited: path in the port → relative error of the layer's output in the port's own pass.
        judged: paths in the port of the layers that were judged alone.
        left_out: path in the port → why the layer could not be judged alone.
        accepted: convention that the case accepts → the layers, in the port, in which nothing else differs.
        bytes_on_disk: the most disk space that the reference's values took.
        activation_bytes: size of its layers' inputs and outputs, each counted once.
    """

    faults: list[Fault]
    matching: Matching
    inherited: dict[str, float]
    judged: set[str]
    left_out: dict[str, str]
    accepted: dict[str, list[str]]
    bytes_on_disk: int
    activation_bytes: int

    def to_json(self) -> dict[str, Any]:
        wrong: dict[str, list[str]] = {}
        for fault in self.faults:
            wrong.setdefault(fault.paddle_layer, []).append(fault.phase)
        layers = {
            port.path: {
                "reference_layer": ours.path,
                "paddle_layer": port.path,
                "class": port.layer,
                "matched_by": self.matching.how[ours.number],
                "judged": port.path in self.judged - self.left_out.keys(),
                "inherited_error": finite(self.inherited.get(port.path)),
                "wrong": wrong.get(port.path, []),
                "draws": [side for side, call in zip(SIDES, (ours, port), strict=True) if call.random],
            }
            for ours, port in self.matching.pairs
            if port.parent is not None
        }
        alone = {side: list(dict.fromkeys(call.path for call in calls)) for side, calls in self.matching.alone.items()}
        return {
            "layers": list(layers.values()),
            "without_partner": alone,
            "left_out": self.left_out,
            "accepted": self.accepted,
        }


def finite(value: float | None) -> float | None:
    """None for what is no number of JSON's."""
    return value if value is not None and math.isfinite(value) else None
