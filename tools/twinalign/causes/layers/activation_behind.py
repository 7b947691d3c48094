"""An activation that the reference's unit ends with, and that the port calls behind its own.

Where nothing else differs, regions settle it (`replay.regions`). Where something does, such as an epsilon, the unit is
judged by what the port has behind that activation; else its lack would be the cause that is proven.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import ENTRY, HANDED, LAYER, UNIT, FunctionCall
from twinalign.causes.layers.activation import activation_of
from twinalign.causes.layers.subject import LayerSubject
from twinalign.replay.wrong_unit import WrongUnit, rewriting
from twinalign.verdict.array_difference import same_sample

_SAME = 1e-9
_OF_A_ROW = ("softmax", "log_softmax")
"""What they give at one place depends on other places, of which a sample has no values."""


def activation_behind(unit: WrongUnit, output: Sequence[float], seen: Sequence[Sequence[float]]) -> FunctionCall | None:
    """The reference's last call, if it is an activation that the port calls on its unit's output.

    Args:
        output: a sample of what the port's unit returns in the port's own pass.
        seen: such samples of what layers behind it are given in that pass.
    """
    subject = LayerSubject(unit)
    last = next((site for site in reversed(subject.sites) if site.name not in (UNIT, ENTRY, HANDED)), None)
    if last is None or activation_of(last) is None or activation_of(last) in _OF_A_ROW:
        return None
    found: list[FunctionCall] = []

    def handle(call: FunctionCall) -> Any:
        if call.key == last.key:
            found.append(call)
        return call.run()

    with rewriting().unchanged(subject.module), rewriting().intercepting(subject.module, handle):
        unit.run()
    try:
        activated = [float(value) for value in applied(found[0], np.array(output))]
    except RuntimeError:  # one with a parameter for each channel, which a sample does not have
        return None
    if same_sample(activated, list(output), _SAME):
        return None
    return found[0] if any(same_sample(activated, list(sample), _SAME) for sample in seen) else None


def behind(call: FunctionCall, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A unit's values with those that it returns activated."""
    return {name: applied(call, array) if "output." in name else array for name, array in values.items()}


def applied(call: FunctionCall, array: np.ndarray) -> np.ndarray:
    """What the call gives for another input."""
    tensor = call.torch.from_numpy(np.array(array, dtype=np.float64))
    with call.torch.no_grad():
        returned = call["module"](tensor) if call.name == LAYER else call.run(input=tensor)
    found: np.ndarray = returned.numpy()
    return found
