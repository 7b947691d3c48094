"""Gradients that the port sends back where the reference stops them, as where a `detach` or `no_grad` is left out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.layer_calls import FORWARD, LOSS


class StoppedGradients:
    """Gradients of the port at tensors that are not differentiable in the reference.

    A call that sends one back is right by itself: the code that handed it the tensor has to stop the gradient. So it
    counts as a gradient that this code gets, which then shows in what the code sends back itself.
    """

    def __init__(self, units: Sequence[ForcedCall]) -> None:
        self._found: dict[str, np.ndarray] = {}
        self._places: set[str] = set()
        """`input.CALL.I`; `output.CALL.I` of a call that stops the gradient itself, not the code around it."""
        for unit in units:
            ends = {"input": unit.call.inputs, "output": unit.call.outputs if unit.call.with_gradients else []}
            for end, tensors in ends.items():
                stopped = [i for i, tensor in enumerate(tensors) if not tensor.differentiable]
                self._places |= {f"{end}.{unit.call.number}.{i}" for i in stopped}

    def get(self, place: str) -> np.ndarray | None:
        """The port's gradient at a place, in its own form."""
        return self._found.get(place)

    def take(self, place: str, gradient: np.ndarray) -> bool:
        """Whether the reference stops the gradient at a place: then the port's is kept."""
        if place in self._places and gradient.any():
            self._found[place] = gradient
        return place in self._places

    def find(self, units: Sequence[ForcedCall], gradients: Callable[[ForcedCall, list[Any]], list[Any]]) -> None:
        """Ask every call what it sends back to its inputs, those inside it first.

        Args:
            gradients: returns the gradients, as arrays, of tensors that a call is given; None where there is none.
        """
        for unit in reversed(units):
            given = {f"input.{unit.call.number}.{i}": tensor for i, tensor in enumerate(unit.inputs)}
            given = {place: tensor for place, tensor in given.items() if place in self._places and tensor is not None}
            if not given or not unit.ended:
                continue
            with contextlib.suppress(Exception):  # what the user's code raises is told where the unit is judged
                for place, gradient in zip(given, gradients(unit, list(given.values())), strict=True):
                    if gradient is not None:
                        self.take(place, gradient)
        self._hand_on([unit for unit in units if unit.parent is None])

    def _hand_on(self, roots: Sequence[ForcedCall]) -> None:
        """What the loss sends back is the gradient of what forward returns."""
        calls = {unit.call.path: unit.call for unit in roots}
        if FORWARD not in calls or LOSS not in calls:
            return
        returned = {tensor.number: i for i, tensor in enumerate(calls[FORWARD].outputs)}
        for i, tensor in enumerate(calls[LOSS].inputs):
            found = self._found.get(f"input.{calls[LOSS].number}.{i}")
            if found is not None and tensor.number in returned:
                self._found[f"output.{calls[FORWARD].number}.{returned[tensor.number]}"] = found
