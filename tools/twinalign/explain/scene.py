"""What the engine is given of a wrong unit: the reference's module, ready to run again, and the port's values.

Names of values: `output.0`...; `input.CHILD#CALL.0` for what the unit's own code hands to a child layer;
`gradient.input.0`, `gradient.parameter.NAME`, `gradient.child.CHILD#CALL.0` (with respect to what the child returned);
`buffer.NAME` after the call; `eval.output.0` for the same input in evaluation mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

_ROUNDED: dict[str, Callable[[float], float]] = {
    "eps": lambda value: float(np.float32(value)),
    "momentum": lambda value: 1.0 - float(np.float32(1.0 - value)),
}
"""What float32 makes of a constant of a torch layer; paddle's momentum is one minus torch's."""


class Scene(Protocol):
    """A unit at fault: a layer, the code between layers, or the loss."""

    @property
    def phase(self) -> str:
        """`"forward"`, `"backward"` or `"state"`."""

    @property
    def module(self) -> Any:
        """The reference's torch module of this unit; None for the loss and for the case's own forward."""

    @property
    def training(self) -> bool:
        """Whether the unit runs in training mode."""

    @property
    def port_class(self) -> str:
        """Full class name of the port's layer."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is known of the port's layer: attributes that are numbers, `extra_repr`, parameters missing or extra."""

    @property
    def port(self) -> Mapping[str, np.ndarray]:
        """The port's values, to be reproduced."""

    @property
    def reference(self) -> Mapping[str, np.ndarray]:
        """The reference's values under the same names."""

    def constants_in_float32(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block the unit's normalisations keep their constants in float32, as paddle's do."""

    def run(self) -> Mapping[str, np.ndarray]:
        """Run the unit again on its recorded inputs in float64; children with a partner return what was recorded.

        Layers must be called as `layer(...)`, so that their hooks see it.
        """


@contextlib.contextmanager
def constants_in_float32(layers: Iterable[Any]) -> Iterator[None]:
    """Inside the block epsilon and momentum of these torch layers have the values that float32 keeps of them."""
    before: list[tuple[Any, str, float]] = []
    for layer in layers:
        for name, rounded in _ROUNDED.items():
            value = getattr(layer, name, None)
            if isinstance(value, float):
                before.append((layer, name, value))
                setattr(layer, name, rounded(value))
    try:
        yield
    finally:
        for layer, name, value in before:
            setattr(layer, name, value)
