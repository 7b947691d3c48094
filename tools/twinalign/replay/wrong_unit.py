"""What causes are tried on: a wrong unit, which is a layer, the code between layers, or the loss.

Names of values: `output.0`...; `input.CHILD#CALL.0` for the inputs that the unit's own code gives to a child layer;
`gradient.input.0`, `gradient.parameter.NAME`, `gradient.child.CHILD#CALL.0` (with respect to the child's output);
`buffer.NAME` after the call; `eval.output.0` for the same input in evaluation mode.
"""

import contextlib
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np


class WrongUnit(Protocol):
    """A wrong unit of the port, whose counterpart in the reference can run again.

    Attributes:
        phase: `"forward"`, `"backward"` or `"state"`.
        module: the reference's torch module of this unit; None for the loss and for the case's own forward.
        training: whether the unit runs in training mode.
        port_class: full class name of the port's layer.
        facts: the port's layer: attributes that are numbers or text, and `extra_repr`.
        port: the port's values by name, which are to be reproduced.
        reference: the reference's values under the same names.
        children: path in the unit and label of each call of a matched layer inside it, in their order.
        held: names of those among them that do not differ, and that no cause may change.
    """

    phase: str
    module: Any
    training: bool
    port_class: str
    facts: Mapping[str, Any]
    port: Mapping[str, np.ndarray]
    reference: Mapping[str, np.ndarray]
    children: Sequence[tuple[str, str]]
    held: Collection[str]

    def run(self, perturbation: float = 0.0) -> Mapping[str, np.ndarray]:
        """Run the unit again on its recorded inputs in float64; matched child layers return what was recorded.

        Both are moved by noise of the relative size `perturbation`.

        Layers must be called as `layer(...)`, so that their hooks run.
        """


def phase_of(name: str) -> str:
    """The phase to which a value of a unit belongs."""
    first = name.partition(".")[0]
    return {"gradient": "backward", "buffer": "state", "state": "state"}.get(first, "forward")


def constants_in_float32() -> contextlib.AbstractContextManager[None]:
    """Inside the block the reference's normalisations keep their constants in float32, as paddle's do."""
    from twinalign.backends.torch.reference_only import graph

    mode: contextlib.AbstractContextManager[None] = graph.ConstantsInFloat32()
    return mode


@functools.cache
def rewriting() -> Any:
    """The module that intercepts torch's function calls; importing it imports torch."""
    from twinalign.backends.torch.reference_only import rewriting as found

    return found


@functools.cache
def paddle_spelling() -> Any:
    """The module that computes paddle's functions with torch; importing it imports torch."""
    from twinalign.backends.torch.reference_only import paddle_spelling as found

    return found
