"""Tensors of the port that take the reference's values in a forced pass, after being judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from twinalign.replay.aligned_tensors import aligned
from twinalign.replay.case_run import CaseRun
from twinalign.replay.forced_call import SHARED, ForcedCall
from twinalign.replay.layer_calls import Enough, Tensor
from twinalign.replay.layouts import Layouts, PlainForm, are_repeated, masked
from twinalign.replay.mask_forms import Form, OtherTruths, other_truths
from twinalign.replay.nested_tensors import Place, put_together
from twinalign.replay.own_values import OwnValues
from twinalign.replay.tensor_store import TensorStore
from twinalign.verdict.array_difference import Difference, difference

_THE_SAME, _EQUAL, _OF_ITS_SHAPE = 8, 6, 4
_HIDES_ALL = -1e30
"""What a mask adds that is less hides whatever it is added to: float32's least number does as much as float64's."""


class ForcedTensors:
    """What the reference's values are given in place of.

    Attributes:
        as_alone: whether nothing was so far: no value of the port was another.
        ending: number of the call that ends the pass with the first wrong tensor that its code hands on; None: none.
    """

    def __init__(self, run: CaseRun, store: TensorStore) -> None:
        self._run, self._backend, self._store = run, run.backend, store
        self.as_alone = True
        self.ending: int | None = None
        self._layouts = Layouts()
        self._shared: dict[int, tuple[Any, int, Form | None]] = {}
        """id of a tensor of the port → the tensor, the number of the reference's tensor that it replaces, its form."""
        self._blames: dict[int, list[tuple[ForcedCall, str, Difference, np.ndarray, np.ndarray]]] = {}
        """id of a form that is a layer's doing → whose difference it is, if what takes it is wrong for that."""
        self._own: dict[int, tuple[ForcedCall, str, OwnValues]] = {}
        """Number of a tensor of the reference's → whose difference it is that the port's values are others."""
        self._taken: dict[int, OwnValues] = {}
        """The same of those that a layer takes as the port has them."""

    def order(self, ours: Sequence[Any], theirs: Sequence[Tensor]) -> list[int]:
        """Places of the port's tensors, those first that stand for the reference's, as `aligned` finds them.

        What a dictionary hands on may come in another order: if all stand for the reference's already, that decides,
        and if each has a shape of its own, that does.
        """
        known = [self._number(tensor) for tensor in ours]
        wanted = [tensor.number for tensor in theirs]
        if known != wanted and len({*known}) == len(known) == len(wanted) and {*known} == {*wanted}:
            return [known.index(number) for number in wanted]
        shapes, others = [list(tensor.shape) for tensor in ours], [tensor.shape for tensor in theirs]
        if shapes != others and sorted(shapes) == sorted(others) and all(shapes.count(one) == 1 for one in shapes):
            return [shapes.index(shape) for shape in others]
        return aligned(len(ours), len(theirs), lambda place, other: self._likeness(ours[place], theirs[other]))

    def stands_for(self, tensor: Any, theirs: Tensor) -> bool:
        """Whether a tensor of the port is known to be this one of the reference's."""
        return self._number(tensor) == theirs.number

    def order_of_values(self, unit: ForcedCall) -> list[int] | None:
        """For each input of the partner's where its values are, if all of them are given, in another order."""
        theirs = unit.call.inputs
        if len(theirs) != len(unit.given) or any(tensor is None for tensor in unit.given):
            return None
        places = range(len(theirs))
        order = [next((n for n in places if self._likeness(one, theirs[n]) >= _EQUAL), -1) for one in unit.given]
        return order if order != [*places] and {*order} == {*places} else None

    def reordered(self, unit: ForcedCall, order: Sequence[int]) -> ForcedCall:
        """A unit before it runs: at each place of its arguments stands the input at this place of the order."""
        made, places = unit.anew(), sorted(range(len(order)), key=order.__getitem__)
        made.given, made.forms, made.layouts = [], [], {}
        made.signature = put_together(unit.signature, [*map(Place, order)])
        made.order = [unit.order[place] for place in places]
        owner = unit.parent or unit
        for found in (owner.differences, owner.port, owner.reference):
            for place in places:
                found.pop(f"input.{unit.label}.{place}", None)
        self.force_inputs(made, [unit.given[place] for place in places])
        return made

    def _number(self, tensor: Any) -> int | None:
        """The number of the reference's tensor that a tensor of the port stands for, if that is known."""
        known = self._shared.get(id(tensor))
        return known[1] if known is not None and known[0] is tensor else None

    def _likeness(self, tensor: Any, theirs: Tensor) -> int:
        if (known := self._number(tensor)) is not None:
            return _THE_SAME if known == theirs.number else 0
        if self._is_another(tensor, theirs):
            return 0
        port, reference = self._backend.values_of(tensor), self.read(theirs)
        if port.shape != reference.shape:
            return int(port.size == reference.size or are_repeated(port, reference))
        return _EQUAL if difference(port, reference, theirs.scale).relative <= SHARED else _OF_ITS_SHAPE

    def again(self, unit: ForcedCall, number: int) -> Any:
        """An input of the reference's once more: the unit may have changed its input in place."""
        if number >= len(unit.call.inputs):
            return unit.inputs[number]
        theirs = unit.call.inputs[number]
        return self.in_place_of(theirs, unit.layouts.get(f"input.{unit.call.number}.{number}"))

    def in_place_of(self, theirs: Tensor, layout: Form | None, flows: bool = False) -> Any:
        """A tensor of the reference as one of the port, in the port's form; differentiable also if `flows`."""
        array = self.read(theirs) if layout is None else layout.to_port(self.read(theirs))
        made = self._backend.to_tensor(array, self._run.dtype, self._run.device)
        return self._known_as(self._backend.detached(made, theirs.differentiable or flows), theirs, layout)

    def in_reference_form(self, theirs: Tensor, form: Form) -> Any:
        """A tensor of the reference as one of the port; of the port's own values in the shape that these have."""
        array, inner = self.read(theirs), form.inner if isinstance(form, OwnValues) else None
        made = array if inner is None else inner.to_port(array)
        return self._backend.to_tensor(made, self._run.dtype, self._run.device)

    def force_inputs(self, unit: ForcedCall, tensors: Sequence[Any]) -> None:
        """Judge the inputs that the enclosing code computed, and replace them with the reference's."""
        for number, theirs in enumerate(unit.call.inputs[len(tensors) :], start=len(tensors)):
            unit.lacking[f"input.{number}"] = np.array(self.read(theirs))
        owner = unit.parent or unit
        taken_again = 0
        for number, tensor in enumerate(tensors):
            if number >= len(unit.call.inputs):
                places = (i for i, given in enumerate(unit.given) if given is not None)
                same = [i for i in places if tensors[i] is tensor or self._are_equal(tensors[i], tensor)]
                taken_again += bool(same)
                unit.given.append(None)
                unit.inputs.append(unit.inputs[same[0]] if same else tensor)
                continue
            theirs = unit.call.inputs[number]
            if self._is_another(tensor, theirs):
                unit.lacking[f"input.{number}"] = np.array(self.read(theirs))
                unit.given.append(None)
                unit.inputs.append(tensor)
                continue
            if (own := self._as_taken(tensor, theirs)) is not None:
                unit.layouts[f"input.{unit.call.number}.{number}"] = own
                unit.given.append(tensor)
                unit.inputs.append(self.in_place_of(theirs, own))
                continue
            known = self._shared.get(id(tensor))
            if known is not None and known[0] is tensor and known[1] == theirs.number:
                if known[2] is not None:
                    unit.layouts[f"input.{unit.call.number}.{number}"] = known[2]
                    unit.forms += self._blames.get(id(known[2]), ())
                unit.given.append(tensor)
                unit.inputs.append(self._backend.detached(tensor, self._flows(tensor, theirs)))
                continue
            name = f"input.{unit.label}.{number}"
            unit.given.append(tensor)
            place = f"input.{unit.call.number}.{number}"
            layout = self._other_truths(unit, place, tensor, theirs)
            layout = layout or (self._masked(unit, place, tensor, theirs) if number else None)
            layout = layout or self._layout(unit, place, tensor, theirs)
            if layout is not None and unit.parent is not None:
                port, reference = np.array(self._backend.values_of(tensor)), np.array(self.read(theirs))
                unit.forms.append((owner, name, difference(port, reference), port, reference))
                if isinstance(layout, OtherTruths):
                    self._blames[id(layout)] = unit.forms[-1:]
            unit.inputs.append(self._forced(owner, name, tensor, theirs, unit.parent is not None, layout))
        if owner.call.number == self.ending and owner.differences:
            raise Enough
        _match_again(unit)
        if len(tensors) - taken_again != len(unit.call.inputs) - sum(map(len, unit.given_again.values())):
            unit.notes.append(f"takes {in_words(tensors)}, the reference's takes {len(unit.call.inputs)}")

    def _are_equal(self, one: Any, other: Any) -> bool:
        """Whether two tensors have the same values, as what a port computes twice has."""
        return one.shape == other.shape and np.array_equal(self._backend.values_of(one), self._backend.values_of(other))

    def force_outputs(self, unit: ForcedCall, returned: Sequence[Any]) -> None:
        if len(returned) != len(unit.call.outputs):
            unit.notes.append(f"returns {in_words(returned)}, the reference's returns {len(unit.call.outputs)}")
            # An extra output may be unused, as the weights of torch's attention often are. If a needed one is missing,
            # the outputs of the enclosing code differ.
            if unit.parent is None or unit.parent.layer is None:
                unit.differences["output"] = Difference(np.inf, text=unit.notes[-1])
        elif unit.layer is None:
            # The case's own forward has picked what it returns.
            for child in unit.children:
                if len(child.outputs) > len(child.call.outputs):
                    child.differences.pop("output", None)
        for number, theirs in enumerate(unit.call.outputs[len(returned) :], start=len(returned)):
            unit.lacking[f"output.{number}"] = np.array(self.read(theirs))
        for number, tensor in enumerate(returned):
            unit.outputs.append(tensor)
            if number >= len(unit.call.outputs):
                unit.handed_on.append(tensor)
                continue
            theirs = unit.call.outputs[number]
            layout = None
            if unit.layer is not None:
                place = f"output.{unit.call.number}.{number}"
                # Of several results a later one is handed from layer to layer: a bias, a mask.
                layout = self._masked(unit, place, tensor, theirs) if number else None
                layout = layout or self._layout(unit, place, tensor, theirs)
            unit.handed_on.append(self._forced(unit, f"output.{number}", tensor, theirs, not unit.call.random, layout))

    def read(self, theirs: Tensor) -> np.ndarray:
        assert theirs.number is not None
        return self._store.read(theirs.number)

    def in_form_of(self, theirs: Tensor, tensor: Any, layout: Form | None) -> np.ndarray:
        """The port's values in the form of the reference's; `layout`: the port's form of them, if it is known."""
        port, reference = self._backend.values_of(tensor), self.read(theirs)
        if port.shape == reference.shape:
            return port
        layout = layout or self._layouts.of(port, reference)
        return layout.to_reference(port) if layout is not None else port

    def _layout(self, unit: ForcedCall, place: str, tensor: Any, theirs: Tensor) -> Form | None:
        """The form in which the port has a tensor of the reference, if it is another one, by its values."""
        if list(tensor.shape) == theirs.shape:
            return None
        found = self._layouts.of(self._backend.values_of(tensor), self.read(theirs))
        if found is not None:
            unit.layouts[place] = found
        return found

    def _other_truths(self, unit: ForcedCall, place: str, tensor: Any, theirs: Tensor) -> Form | None:
        """The form of a mask that is written in another way; who takes it may blame the code that made it."""
        found = other_truths(self._backend.values_of(tensor), self.read(theirs))
        if found is not None:
            unit.layouts[place] = found
        return found

    def _masked(self, unit: ForcedCall, place: str, tensor: Any, theirs: Tensor) -> Form | None:
        """The form of a tensor to which the port has added a mask; who takes it may blame the unit for that."""
        port, reference = self._backend.values_of(tensor), self.read(theirs)
        found = masked(port, reference)
        if found is not None:
            unit.layouts[place] = found
            blame = unit, place.replace(f".{unit.call.number}.", "."), difference(port, reference), port, reference
            self._blames[id(found)] = [blame]
        return found

    def own_values(self, unit: ForcedCall) -> dict[str, OwnValues]:
        """The inputs of a unit, by the places of their forms, that the port has in values of its own."""
        return {
            place: self._own[theirs.number][2]
            for number, theirs in enumerate(unit.call.inputs)
            if theirs.number in self._own
            and not isinstance(unit.layouts.get(place := f"input.{unit.call.number}.{number}"), OwnValues)
            and number < len(unit.given)
        }

    def take(self, own: Iterable[OwnValues]) -> None:
        """Values that the port has of its own, and takes so, are right."""
        for values in own:
            for number, (owner, name, known) in list(self._own.items()):
                if known is values:
                    self._taken[number] = values
                    del self._own[number]
                    for found in (owner.differences, owner.port, owner.reference):
                        found.pop(name, None)

    def _as_taken(self, tensor: Any, theirs: Tensor) -> OwnValues | None:
        """The form of a tensor that a layer has taken as the port has it."""
        known = self._taken.get(-1 if theirs.number is None else theirs.number)
        if known is None or not (self.stands_for(tensor, theirs) or known.is_of(self._backend.values_of(tensor))):
            return None
        return known

    def _forced(
        self, owner: ForcedCall, name: str, tensor: Any, theirs: Tensor, judged: bool, layout: Form | None
    ) -> Any:
        """The reference's values in place of a tensor, after judging it; the tensor itself if both are equal."""
        reference = self.read(theirs)
        own = self._backend.values_of(tensor)
        port = layout.to_reference(own) if layout is not None else own
        if port.shape == reference.shape and port.dtype.kind == reference.dtype.kind == "f":
            hidden = (port < _HIDES_ALL) & (reference < _HIDES_ALL)
            port = np.where(hidden, reference, port) if hidden.any() else port
        found = owner.judge(name, port, reference, theirs.scale) if judged else Difference(np.inf)
        same_size = port.shape != reference.shape and port.size == reference.size
        if name in owner.differences and port.shape == reference.shape and not self._flows(tensor, theirs):
            assert theirs.number is not None
            inner = layout if isinstance(layout, PlainForm) else None
            self._own[theirs.number] = owner, name, OwnValues(np.array(own), np.array(reference), inner)
        if name.startswith("output."):
            owner.apart = max(owner.apart, found.relative)
        self.as_alone &= found.relative <= SHARED if judged else np.array_equal(port, reference)
        if found.relative <= SHARED or same_size:
            # In a form whose order of values is unknown, the port's own values are all that can be handed on.
            forced = self._backend.detached(tensor, self._flows(tensor, theirs))
        else:
            return self.in_place_of(theirs, layout, self._flows(tensor, theirs))
        return self._known_as(forced, theirs, layout)

    def _is_another(self, tensor: Any, theirs: Tensor) -> bool:
        """Whether one is of floating point, the other not, and their shapes differ: a mask in place of positions."""
        if list(tensor.shape) == theirs.shape or ("float" in str(tensor.dtype)) == ("float" in theirs.dtype):
            return False
        return other_truths(self._backend.values_of(tensor), self.read(theirs)) is None

    def _flows(self, tensor: Any, theirs: Tensor) -> bool:
        """Whether gradients reach a tensor of the port: those that the reference stops there are judged, too."""
        return theirs.differentiable or ("float" in theirs.dtype and self._backend.differentiable(tensor))

    def _known_as(self, forced: Any, theirs: Tensor, layout: Form | None) -> Any:
        assert theirs.number is not None
        self._shared[id(forced)] = (forced, theirs.number, layout)
        return forced


def _match_again(unit: ForcedCall) -> None:
    """Find out which inputs of the reference's call, lacking in the port's, are a tensor that the port's is given."""
    theirs = [tensor.number for tensor in unit.call.inputs]
    first = {theirs[place]: place for place, tensor in reversed([*enumerate(unit.given)]) if tensor is not None}
    for place in range(len(unit.given), len(theirs)):
        if theirs[place] in first:
            unit.given_again.setdefault(first[theirs[place]], []).append(place)


def in_words(given: Sequence[Any]) -> str:
    """How many tensors these are, in words."""
    return "1 tensor" if len(given) == 1 else f"{len(given)} tensors"
