"""The forced pass of the port, in which every layer gets the reference's inputs.

Runs in the port's process. In the forced pass a layer with a partner in the reference gets the partner's inputs, its
outputs are compared with the partner's, and the partner's outputs are passed on. What a module's own code computes
between its layers is compared when it reaches the next layer or is returned. So no error reaches the next comparison:
one pass finds every wrong layer and every wrong piece of code between layers.

What the port holds in another form than the reference (`[B, H, W, C]` for `[B, L, C]`) stays in that form, with the
reference's values. A layer that cannot run on them is left out by name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.patching import replaced
from twinalign.replay.aligned_tensors import in_order
from twinalign.replay.case_run import CaseRun, in_evaluation_mode
from twinalign.replay.code_lines import OwnCode, tracing
from twinalign.replay.forced_call import ForcedCall, UnitFailedError, is_joined, is_packed, is_stacked
from twinalign.replay.forced_state import ForcedState
from twinalign.replay.forced_tensors import ForcedTensors, in_words
from twinalign.replay.judged_before import Result, StandIns, able_to_stand, clearly_wrong, stands_for
from twinalign.replay.layer_calls import LOSS, Call, CallStack, Enough, wrapped
from twinalign.replay.nested_tensors import Place, each_once, order_by_names, put_together, take_apart
from twinalign.replay.regions import numbers_from, tested_apart
from twinalign.replay.repeated_calls import same_as_before
from twinalign.replay.tensor_store import TensorStore
from twinalign.replay.tried_inputs import TriedInputs
from twinalign.verdict.array_difference import difference


class ForcedForward:
    """The forced pass; keeps the graph of every unit until `ForcedBackward` has judged its gradients.

    Args:
        pairs: (path in the port, ordinal) → the partner's call.
        with_extra_layers: numbers of the reference's calls that call layers without partners.
        behind: number of a call → the reference's call of a layer without a partner that is given what it returns.
        moved: the reference's names of parameters and buffers that its pass changes.
        wanted: number of a call of the reference → values that are kept though they do not differ.
        bound_of: layer → greatest relative difference that constants kept in float32 explain.
        alone: number of a call → how far off what its partner returns is in the port's own pass, if that is known.
        standing: what stands in for units that need not run; None if all run.

    Attributes:
        units: calls that were judged, in the order in which they began.
        assumed: numbers of calls on whose distance something was decided, with the bound for their layers.
        tensors: what the reference's values were given in place of.
    """

    def __init__(
        self,
        run: CaseRun,
        store: TensorStore,
        state_store: TensorStore,
        pairs: Mapping[tuple[str, int], Call],
        with_extra_layers: set[int],
        behind: Mapping[int, Call],
        moved: Collection[str],
        bound_of: Callable[[Any], float],
        wanted: Mapping[int, Collection[str]] | None = None,
        alone: Mapping[int, float] | None = None,
        standing: StandIns | None = None,
    ) -> None:
        self.run, self.backend = run, run.backend
        self.tensors = ForcedTensors(run, store)
        self.pairs, self.bound_of, self._wanted = pairs, bound_of, wanted or {}
        self.units: list[ForcedCall] = []
        self._state_alone: dict[int, ForcedCall] = {}
        self._with_extra_layers, self._behind = with_extra_layers, behind
        self._alone, self._standing = alone or {}, standing
        self.assumed: dict[int, float] = {}
        self.given_up: dict[int, set[str]] = {number: set() for number in standing.given_up} if standing else {}
        """Number of a call without its pair → its buffers that differ now."""
        self._reconsidered: set[int] = set(standing.needed) if standing else set()
        self._before: Mapping[int, ForcedCall] = {}
        """Number of a call → its unit in an earlier run of the code that runs again."""
        self._running: list[ForcedCall] = []
        self._trying = False
        """Whether a unit runs once more, which is not judged."""
        self.is_followed = True
        """Whether it is noted what the code of units computes."""
        self.on_copies = False
        """Whether code gets copies of forced tensors: paddle changes no leaf in place that has a gradient."""
        self.left_out: dict[str, str] = {}
        """Path of a pseudo-call → why it is not judged."""
        self._ordinals = CallStack()
        self._state = ForcedState(run, state_store, moved)
        self._inputs = TriedInputs(run, self.tensors, self._state, functools.partial(replaced, self, "_trying", True))

    def __call__(self) -> None:
        """Run forward and loss, up to the last call that is asked about."""
        own_code = OwnCode(self.backend, lambda: self._running[-1] if self._running else None)
        with (
            contextlib.suppress(Enough),
            self.backend.default_dtype(self.run.dtype),
            wrapped(self.backend.named_layers(self.run.model), self._around),
            own_code.followed() if self.is_followed else contextlib.nullcontext(),
        ):
            self.run.through(self._around)
        for unit in self.units:
            if not unit.ended and unit.parent is not None:  # the pass has ended inside
                unit.parent.children.append(unit)

    @property
    def calls(self) -> int:
        """How many calls of layers there were, in a pass in which nothing ran twice."""
        return len(self._ordinals.calls)

    @property
    def wrong_in_state_alone(self) -> list[ForcedCall]:
        """Calls whose pairs were given up, but whose buffers are wrong on the reference's inputs."""
        return [u for n, u in self._state_alone.items() if n in self.given_up and u.differences]

    def _around(self, path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        if self._trying:
            return forward(*arguments, **keywords)
        own = self._ordinals.begin(path, layer)
        partner = self.pairs.get((path, own.ordinal))
        parent = self._running[-1] if self._running else None
        tensors, signature = take_apart((arguments, keywords), self.backend.is_tensor)
        try:
            stacked = partner is not None and path != LOSS and is_stacked(tensors, partner)
            if stacked and partner is not None:
                text = f"it is given {in_words(tensors)}, the reference's {len(partner.inputs)} of the same size in all"
                self.left_out[path] = f"{text}; its own code was judged with the code around it"
            if partner is None or stacked or is_packed(layer, tensors, partner):
                # A layer without a partner counts as code of the module around it.
                if (
                    again := same_as_before(parent.children if parent else (), path, tensors, self.backend)
                ) is not None:
                    self._ordinals.pass_over(again.counted)
                    return self._returned(again)
                if parent is not None:
                    parent.extra.append(len(parent.children))
                return forward(*arguments, **keywords)
            wanted = self._wanted.get(partner.number, ())
            unit = ForcedCall(partner, path, layer, parent, self.bound_of(layer), wanted)
            if partner.number in self.given_up:
                return self._without_pair(unit, forward, arguments, keywords)
            if self._standing and (known := self._standing.of(partner.number)):
                if any(theirs.number is None for theirs in partner.outputs):  # inside of a pair that was given up
                    return forward(*arguments, **keywords)
                return self._returned(self._standing_in(unit, tensors, known))
            if path == LOSS and len(tensors) != len(partner.inputs):
                # The model is at fault that returns another number: on other outputs the same loss is another.
                text = f"it is given {in_words(tensors)}, in the reference {len(partner.inputs)}"
                self.left_out[path] = f"{text}, because the model returns another number of them"
                return forward(*arguments, **keywords)
            unit.takes_joined = is_joined(tensors, partner.inputs)
            unit.order = self.tensors.order(tensors, partner.inputs)
            self.tensors.force_inputs(unit, [tensors[place] for place in unit.order])
            unit.signature = put_together(signature, [*map(Place, in_order(unit.order, range(len(tensors))))])
            begun, place = self._ordinals.mark(), len(self.units)
            unit = self._known(unit) or self._judged(unit, forward)
            if self._inputs.hands_on_own_values(unit, forward):
                self._ordinals.back_to(begun)
                del self.units[place:]
                return self._without_pair(unit.anew(), forward, arguments, keywords)
        finally:
            self._ordinals.end(own)
        if parent is not None:
            parent.children.append(unit)
        if self._standing and partner.number == self._standing.last:
            raise Enough
        return self._returned(unit)

    def _known(self, unit: ForcedCall) -> ForcedCall | None:
        """The unit as it was in an earlier run of the code around it, if it would be so again."""
        before = self._before.get(unit.call.number)
        if before is None or not stands_for(before, unit, self.given_up, self.backend.version):
            return None
        again = dataclasses.replace(before, given=unit.given, parent=unit.parent)
        self._ordinals.pass_over(again.counted)
        self.units += [again, *again.inside()]
        return again

    def _standing_in(self, unit: ForcedCall, tensors: Sequence[Any], known: Result) -> ForcedCall:
        """Hand on what the reference's call returns, without running the unit."""
        if unit.parent is not None and unit.parent.wanted:
            self.tensors.force_inputs(unit, [tensors[place] for place in known.order])
        unit.layouts |= known.layouts
        unit.handed_on = [
            self.tensors.in_place_of(theirs, known.layouts.get(f"output.{unit.call.number}.{number}"))
            for number, theirs in enumerate(unit.call.outputs)
        ]
        unit.result, unit.ended = known.result, True
        self._ordinals.pass_over(known.counted)
        self.units.append(unit)
        if unit.parent is not None:
            unit.parent.children.append(unit)
        return unit

    def _returned(self, unit: ForcedCall) -> Any:
        """What the code around a unit is given, in the port's containers."""
        skeleton, places = unit.result
        handed_on = self._given(unit.handed_on)
        return put_together(skeleton, [handed_on[place] for place in places])

    def _without_pair(self, unit: ForcedCall, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        for around in self._running:
            around.given_up.add(unit.call.number)
        if unit.layer is None:
            return forward(*arguments, **keywords)
        self._state.entered(unit)
        self._state.force(unit, unit.call.state)
        result = forward(*arguments, **keywords)
        self._state.force(unit, unit.call.state_after, after=True)
        self.given_up[unit.call.number] = set(unit.differences)
        return result

    def _judged(self, unit: ForcedCall, forward: Callable[..., Any]) -> ForcedCall:
        """Run a unit, and again without those pairs inside that its end results refute."""
        begun, place, state = self._ordinals.mark(), len(self.units), self._state.of(unit)

        def run(tried: ForcedCall) -> ForcedCall:
            self.units.append(tried)
            return self._run(tried, forward)

        def again(known: Mapping[int, ForcedCall]) -> ForcedCall:
            self._ordinals.back_to(begun)
            self._state.set(state)
            del self.units[place:]
            once_more = unit.anew()
            once_more.inputs = [self.tensors.again(unit, number) for number in range(len(unit.inputs))]
            with replaced(self, "_before", known):
                return run(once_more)

        def without(numbers: Collection[int]) -> ForcedCall:
            self.given_up |= {number: set() for number in numbers}
            return again(able_to_stand(found, moved))

        found = run(unit)
        if found.wrong_ends() and (turned := self._inputs.in_other_order(found, forward, state)) is not None:
            unit = turned
            found = again({})
        if found.wrong_ends() and (own := self._inputs.taken_as_they_are(found, forward, state)):
            unit.layouts |= own
            found = again({})
        if found.has_blamed_forms:  # its layers and its gradients are judged in the reference's form
            unit.layouts, unit.forms = {}, []
            found = again({})
        if unit.call.number in self._reconsidered or not any(inside.wrong_ends() for inside in unit.inside()):
            return found
        now = self._state.of(unit)
        moved = [name for name, array in state.items() if not np.array_equal(array, now[name], equal_nan=True)]
        self._reconsidered.add(unit.call.number)
        more = {child.call.number for child in found.children if self._holds_next(child)}
        found = tested_apart(
            found,
            lambda tried, numbers, *judging: self._tried(tried, place, numbers, without, *judging),
            self.given_up,
            self._with_extra_layers,
            more,
        )
        wrong = {inside.call.number for inside in found.inside() if inside.wrong_ends()}
        everything = numbers_from(found, min(wrong, default=0))
        if not wrong or (len(found.children) == 1 and not found.wrong_ends()):
            return found
        apart = self._alone.get(unit.call.number, 0.0)
        if clearly_wrong(apart, unit.bound) and not any(before.differences for before in self.units[:place]):
            # So far the port's own pass was right, and what this unit does there without any pair is known to be wrong.
            self.assumed[unit.call.number] = unit.bound
            return found
        whole = self._tried(
            found, place, everything, without, lambda tried: everything, lambda tried: self._agrees(tried, found)
        )
        if whole is found or wrong == everything:
            return whole
        # The region agrees: no more of its pairs are given up than it takes.
        for number in everything - wrong:
            del self.given_up[number]
        fewer = without(wrong)
        return fewer if self._agrees(fewer, found) else without(everything)

    def _holds_next(self, unit: ForcedCall) -> bool:
        """Whether a layer returns what the reference has behind the next one, which has no partner: it holds both."""
        ours, behind = unit.port.get("output.0"), self._behind.get(unit.call.number)
        if ours is None or behind is None or unit.wrong_ends().keys() != {"output.0"}:
            return False
        return difference(ours, self.tensors.read(behind.outputs[0])).relative <= unit.bound

    def _tried(
        self,
        found: ForcedCall,
        place: int,
        numbers: set[int],
        without: Callable[[Collection[int]], ForcedCall],
        settle: Callable[[ForcedCall], Collection[int]],
        accept: Callable[[ForcedCall], bool],
    ) -> ForcedCall:
        """Run the unit without the pairs of these calls; those that `settle` names then are given up for good."""
        if not numbers:
            return found
        units, state = self.units[place:], self._state.of(found)
        try:
            final = without(numbers)
            settled = set(settle(final))
            if settled and settled != numbers:
                for number in numbers - settled:
                    del self.given_up[number]
                final = without(settled)
            accepted = bool(settled) and accept(final)
        except Exception:  # its own layers may not take what the reference's take
            accepted = False
        if accepted:
            self._state_alone.update({unit.call.number: unit.state_alone() for unit in units})
            return final
        for number in numbers:
            self.given_up.pop(number, None)
        self._state.set(state)
        self.units[place:] = units
        return found

    def _agrees(self, tried: ForcedCall, before: ForcedCall) -> bool:
        """Whether nothing in the unit is wrong now; buffers may differ as they did on the reference's inputs."""
        differed = {inside.call.number: inside.differences for inside in before.inside()}
        return not any(unit.wrong_ends() for unit in (tried, *tried.inside())) and all(
            names <= differed[number].keys() for number, names in self.given_up.items() if number in differed
        )

    def _run(self, unit: ForcedCall, forward: Callable[..., Any]) -> ForcedCall:
        begun = self._ordinals.mark()
        if unit.layer is not None:
            self._state.entered(unit)
            self._state.force(unit, unit.call.state)
        self._running.append(unit)
        try:
            forced = put_together(unit.signature, self._given(unit.inputs))
            result = forward(*forced[0], **forced[1])
            leaves, skeleton = take_apart(result, self.backend.is_tensor)
            returned, places = each_once(leaves, len(unit.call.outputs))
            named = order_by_names(skeleton, unit.call.places)
            order = self.tensors.order(returned, unit.call.outputs) if named is None else named
            self.tensors.force_outputs(unit, [returned[place] for place in order])
            places = in_order(order, places)
            if unit.layer is not None:
                self._after(unit, forward, forced)
                self._state.called(unit)
            if unit.forms and unit.differences and self._inputs.right_in_reference_form(unit, forward):
                unit.blame_forms()
        except UnitFailedError:
            raise
        except Exception as error:  # the user's code, which is given what it may not expect, can raise anything
            raise UnitFailedError(unit, error) from error
        finally:
            self._running.pop()
        unit.result, unit.counted, unit.ended = (skeleton, places), self._ordinals.since(begun), True
        unit.versions = [self.backend.version(tensor) for tensor in unit.passed_on()]
        return unit

    def _given(self, tensors: Sequence[Any]) -> list[Any]:
        copied = self.on_copies
        return [tensor.clone() if copied and self.backend.differentiable(tensor) else tensor for tensor in tensors]

    def _after(self, unit: ForcedCall, forward: Callable[..., Any], forced: tuple) -> None:
        """Judge the buffers that the call has changed, and the same call in evaluation mode."""
        if not unit.call.state_after:
            return
        self._state.force(unit, unit.call.state_after, after=True)
        if not unit.call.evaluation:
            return
        evaluating = replaced(self, "_trying", True)
        with in_evaluation_mode(unit.layer), self.backend.no_grad(), tracing(None), evaluating:
            leaves, _ = take_apart(forward(*forced[0], **forced[1]), self.backend.is_tensor)
        returned, _ = each_once(leaves, len(unit.call.evaluation))
        for number, (tensor, theirs) in enumerate(zip(returned, unit.call.evaluation, strict=False)):
            port = self.tensors.in_form_of(theirs, tensor, unit.layouts.get(f"output.{unit.call.number}.{number}"))
            unit.judge(f"eval.output.{number}", port, self.tensors.read(theirs), theirs.scale)
