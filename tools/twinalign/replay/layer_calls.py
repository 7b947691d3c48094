"""Calls of layers, in a form that both sides and the parent share, and how a side intercepts them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twinalign.backends.layer_classes import full_name
from twinalign.patching import replaced

FORWARD = "(forward)"
"""Path of the pseudo-call around `Case.forward`: what it does besides calling layers is the model's own code."""
LOSS = "(loss)"
"""Path of the pseudo-call around `Case.loss`."""
_OF_TENSORS = ("inputs", "outputs", "evaluation")
_RANDOM = ("drop", "stochasticdepth")
"""Dropout of any kind, drop path, torchvision's name for it; in lower case."""


class Enough(BaseException):
    """Ends a pass behind the last call that is asked about; no `except Exception` of a user's code catches it."""


@dataclasses.dataclass
class Tensor:
    """One tensor that went into or came out of a call.

    Attributes:
        number: number of the values in the store, None if they were not kept.
        differentiable: whether gradients reach it.
        scale: root mean square of the values, if they were kept.
        sample: a few evenly spaced elements, to recognise the same values elsewhere.
        inherited: on the port's side, relative distance from the reference's in the pass without forcing.
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
        path: path of the layer, or one of the pseudo-calls.
        parent: number of the call that this one happened in, None for the pseudo-calls.
        ordinal: how many calls of the same layer came before.
        inputs, outputs: tensors in the order of the (flattened) arguments and results.
        state: own parameters and buffers that had changed since the start when the call began.
        state_after: own buffers that the call changed.
        evaluation: outputs of the same call in evaluation mode, for a layer in training mode that has buffers.
        random: whether the layer draws random numbers in this mode, so that its outputs cannot agree.
        with_gradients: whether the code that calls it records gradients: it is not inside of `no_grad`.
        places: where each output stands in what the reference's call returns (`['l1']`), if it is not the whole.
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
    with_gradients: bool = True
    places: list[str] = dataclasses.field(default_factory=list)

    @property
    def label(self) -> str:
        return f"{self.path}#{self.ordinal}"

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes, of the same lists: a copy of every number, for a thousand calls, would take longer
        than a layer."""
        return {**vars(self), **{name: [vars(t) for t in getattr(self, name)] for name in _OF_TENSORS}}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Call:
        return cls(**{**values, **{name: [Tensor(**t) for t in values[name]] for name in _OF_TENSORS}})


class CallStack:
    """Numbers calls and knows which one is running."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._open: list[Call] = []
        self._counts: Counter[str] = Counter()

    def begin(self, path: str, layer: Any) -> Call:
        parent = self._open[-1].number if self._open else None
        name = full_name(type(layer)) if layer is not None else path
        call = Call(len(self.calls), path, name, parent, self._counts[path], random=is_random(layer))
        self._counts[path] += 1
        self.calls.append(call)
        self._open.append(call)
        return call

    def end(self, call: Call) -> None:
        """End a call, and those inside it that an exception left open."""
        while self._open and self._open.pop() is not call:
            pass

    def mark(self) -> tuple[int, Counter[str]]:
        """What `back_to` needs to forget the calls that begin from now on."""
        return len(self.calls), Counter(self._counts)

    def back_to(self, mark: tuple[int, Counter[str]]) -> None:
        number, counts = mark
        del self.calls[number:]
        self._counts = Counter(counts)

    def since(self, mark: tuple[int, Counter[str]]) -> Counter[str]:
        """How often each layer was called after `mark`, by its path."""
        return self._counts - mark[1]

    def pass_over(self, counts: Counter[str]) -> None:
        """Count calls that are not made, since what they return is known."""
        self._counts += counts


def is_random(layer: Any) -> bool:
    """Whether a layer drops values at random in its present mode, by its name and a probability above 0."""
    name = type(layer).__name__.lower()
    if layer is None or not getattr(layer, "training", False) or not any(word in name for word in _RANDOM):
        return False
    probabilities = [getattr(layer, name, None) for name in ("p", "drop_prob", "drop_path", "prob")]
    return any(isinstance(value, (int, float)) and value > 0 for value in probabilities)


Around = Callable[[str, Any, Callable[..., Any], tuple, dict], Any]
"""`around(path, layer, forward, arguments, keywords)` returns what the call is to return."""


@contextlib.contextmanager
def wrapped(layers: Iterable[tuple[str, Any]], around: Around) -> Iterator[None]:
    """Send every call of these layers through `around` inside the block, with keywords and direct `forward` calls.

    Hooks would not do: paddle's see positional arguments only, and no hook knows which call it belongs to.
    """
    with contextlib.ExitStack() as stack:
        for path, layer in list(layers):
            stack.enter_context(replaced(layer, "forward", _through(path, layer, layer.forward, around)))
        yield


def _through(path: str, layer: Any, forward: Callable[..., Any], around: Around) -> Callable[..., Any]:
    @functools.wraps(forward)
    def call(*arguments: Any, **keywords: Any) -> Any:
        return around(path, layer, forward, arguments, keywords)

    return call
