"""Calls of layers as one side sees them, in a form that both sides and the parent understand."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

FORWARD = "(forward)"
"""Path of the pseudo-call around `Case.forward`: what it does beside calling layers is the model's own code."""
LOSS = "(loss)"
"""Path of the pseudo-call around `Case.loss`."""


_RANDOM = ("drop", "stochasticdepth")
"""Dropout of any kind, drop path, torchvision's name for it; in lower case."""


@dataclasses.dataclass
class Tensor:
    """One tensor that went into or came out of a call.

    Attributes:
        number: of the values in the store, None where they were not kept.
        shape, dtype: of the values.
        differentiable: whether gradients reach it.
        scale: root mean square of the values, where they were kept.
        sample: a few elements at even distances, to recognise the same values elsewhere.
        inherited: relative distance from the reference's where nothing was forced, on the port's side.
    """

    number: int | None
    shape: list[int]
    dtype: str
    differentiable: bool = False
    scale: float = 0.0
    sample: list[float] = dataclasses.field(default_factory=list)
    inherited: float | None = None


@dataclasses.dataclass
class Call:
    """One call of one layer.

    Attributes:
        number: position among the calls, in the order in which they begin.
        path: of the layer, or one of the pseudo-calls.
        layer: full name of the layer's class.
        parent: number of the call that this one happened in, None for the pseudo-calls.
        ordinal: how many calls of the same layer came before.
        inputs, outputs: tensors in the order of the (flattened) arguments and results.
        state: own parameters and buffers that had changed since the start when the call began.
        state_after: own buffers that the call changed.
        evaluation: outputs of the same call in evaluation mode, for a layer in training mode that has buffers.
        random: whether the layer draws at random in this mode, so that its outputs cannot agree.
    """

    number: int
    path: str
    layer: str
    parent: int | None
    ordinal: int
    inputs: list[Tensor] = dataclasses.field(default_factory=list)
    outputs: list[Tensor] = dataclasses.field(default_factory=list)
    state: dict[str, int] = dataclasses.field(default_factory=dict)
    state_after: dict[str, int] = dataclasses.field(default_factory=dict)
    evaluation: list[Tensor] = dataclasses.field(default_factory=list)
    random: bool = False

    @property
    def label(self) -> str:
        """Path and ordinal, as names of values have it."""
        return f"{self.path}#{self.ordinal}"

    def to_json(self) -> dict[str, Any]:
        """As plain containers."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Call:
        """The inverse of `to_json`."""
        tensors = {name: [Tensor(**t) for t in values[name]] for name in ("inputs", "outputs", "evaluation")}
        return cls(**{**values, **tensors})


class CallStack:
    """Numbers calls and knows which one is running."""

    def __init__(self) -> None:
        """Nothing has been called."""
        self.calls: list[Call] = []
        self._open: list[Call] = []
        self._counts: Counter[str] = Counter()

    def begin(self, path: str, layer: Any) -> Call:
        """A new call inside the one that is running."""
        parent = self._open[-1].number if self._open else None
        name = full_name(type(layer)) if layer is not None else path
        call = Call(len(self.calls), path, name, parent, self._counts[path], random=is_random(layer))
        self._counts[path] += 1
        self.calls.append(call)
        self._open.append(call)
        return call

    def end(self, call: Call) -> None:
        """The call returns; those that an exception left open end with it."""
        while self._open and self._open.pop() is not call:
            pass


def full_name(kind: type) -> str:
    """Module and name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def is_random(layer: Any) -> bool:
    """Whether a layer drops at random in its present mode: its name says so, and a probability above 0."""
    name = type(layer).__name__.lower()
    if layer is None or not getattr(layer, "training", False) or not any(word in name for word in _RANDOM):
        return False
    probabilities = [getattr(layer, name, None) for name in ("p", "drop_prob", "drop_path", "prob")]
    return any(isinstance(value, (int, float)) and value > 0 for value in probabilities)
