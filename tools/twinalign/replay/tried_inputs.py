"""Whether a unit of the forced pass is right on its inputs in another order, or in the form that either side has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twinalign.replay.case_run import CaseRun
from twinalign.replay.code_lines import tracing
from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.forced_state import ForcedState
from twinalign.replay.forced_tensors import ForcedTensors
from twinalign.replay.nested_tensors import Place, each_once, put_together, take_apart
from twinalign.replay.orders_of_inputs import other_orders
from twinalign.replay.own_values import OwnValues
from twinalign.verdict.array_difference import difference


class TriedInputs:
    """Runs units on other inputs than they were judged on.

    Args:
        trying: in its context nothing that runs is judged.
    """

    def __init__(
        self,
        run: CaseRun,
        tensors: ForcedTensors,
        state: ForcedState,
        trying: Callable[[], contextlib.AbstractContextManager[Any]],
    ) -> None:
        self._run, self._tensors, self._state, self._trying = run, tensors, state, trying

    def in_other_order(self, unit: ForcedCall, forward: Callable[..., Any], state: Mapping) -> ForcedCall | None:
        """A wrong unit before it runs, with its inputs in an order in which it is right, or else these are."""
        behind = self._state.of(unit)
        for order in other_orders(unit, self._tensors.stands_for):
            self._state.set(state)
            signature = put_together(unit.signature, [*map(Place, order)])
            if self.right_on(unit, forward, signature, [self._tensors.again(unit, n) for n in range(len(order))]):
                return self._tensors.reordered(unit, order)
        self._state.set(behind)  # as the unit has left it: trials move running statistics too
        by_values = self._tensors.order_of_values(unit)
        return None if by_values is None else self._tensors.reordered(unit, by_values)

    def taken_as_they_are(self, unit: ForcedCall, forward: Callable[..., Any], state: Mapping) -> dict[str, OwnValues]:
        """The inputs with which a wrong unit is right if it gets them in the port's own values; none if it is not."""
        if unit.layer is None or not (own := self._tensors.own_values(unit)):
            return {}
        behind = self._state.of(unit)
        self._state.set(state)
        inputs = [
            self._tensors.in_place_of(theirs, own.get(place) or unit.layouts.get(place))
            for place, theirs in ((f"input.{unit.call.number}.{n}", one) for n, one in enumerate(unit.call.inputs))
        ]
        is_right = len(inputs) == len(unit.inputs) and self.right_on(unit, forward, unit.signature, inputs)
        self._state.set(behind)
        if not is_right:
            return {}
        self._tensors.take(own.values())
        return own

    def hands_on_own_values(self, unit: ForcedCall, forward: Callable[..., Any]) -> bool:
        """Whether a unit is right, and makes of what the port has in values of its own something of that kind."""
        own = [isinstance(form, OwnValues) and place.startswith("input.") for place, form in unit.layouts.items()]
        return any(own) and bool(unit.wrong_ends()) and self.right_in_reference_form(unit, forward)

    def right_in_reference_form(self, unit: ForcedCall, forward: Callable[..., Any]) -> bool:
        """Whether a unit that is wrong on inputs in another form is right on the reference's own."""
        inputs = [
            self._tensors.in_reference_form(theirs, form) if (form := unit.layouts.get(place)) is not None else given
            for place, given, theirs in (
                (f"input.{unit.call.number}.{number}", *both)
                for number, both in enumerate(zip(unit.inputs, unit.call.inputs, strict=False))
            )
        ]
        return self.right_on(unit, forward, unit.signature, inputs)

    def right_on(self, unit: ForcedCall, forward: Callable[..., Any], signature: Any, inputs: Sequence[Any]) -> bool:
        """Whether a unit returns what its partner does, if it is given these inputs in these arguments."""
        try:
            with self._trying(), self._run.backend.no_grad(), tracing(None):
                arguments, keywords = put_together(signature, inputs)
                leaves, _ = take_apart(forward(*arguments, **keywords), self._run.backend.is_tensor)
            pairs = zip(each_once(leaves, len(unit.call.outputs))[0], unit.call.outputs, strict=True)
            return all(
                difference(self._run.backend.values_of(tensor), self._tensors.read(theirs)).relative <= unit.bound
                for tensor, theirs in pairs
            )
        except Exception:  # it does not take them so
            return False
