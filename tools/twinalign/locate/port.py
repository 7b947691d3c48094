"""The port's part of locating: its own pass, and a forced pass in which every layer gets the reference's inputs.

Runs in the port's process. In the forced pass a layer that has a partner in the reference receives what its partner
received, is judged on what it returns, and hands on what its partner returned. What a module's own code makes of its
layers' results is judged where it hands it to the next layer or returns it. No error so reaches the next judgement:
every wrong layer and every wrong piece of code between layers is found in one pass, however many there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.case import Case
from twinalign.locate.calls import FORWARD, LOSS, Call, CallStack, Tensor
from twinalign.locate.measuring import Difference, difference, distance_of_samples, root_mean_square, sample_of
from twinalign.locate.nesting import put_together, take_apart
from twinalign.locate.running import CaseRun, in_evaluation_mode
from twinalign.locate.store import TensorStore
from twinalign.locate.tracing import OwnCode, Step
from twinalign.locate.wrapping import wrapped
from twinalign.recording import random_projections
from twinalign.stages.context import scalar_loss
from twinalign.stages.naming import CanonicalName

SHARED = 1e-12
"""Up to this relative difference the port's own tensor is handed on in place of the reference's: it saves the memory
of a second copy. What a layer makes of a difference of this size is measured before the layer is called wrong
(`scenes.PERTURBATION`)."""


def own_forward(run: CaseRun, calls: Sequence[Call], partner: Callable[[str], str]) -> list[Call]:
    """Run the port on its own; returns its calls, each output's distance from the reference's where names match.

    Args:
        run: the port.
        calls: the reference's calls.
        partner: path of a port's layer → path of the layer of that name in the reference.
    """
    backend, stack = run.backend, CallStack()
    by_name = {(call.path, call.ordinal): call for call in calls}

    def around(path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        call = stack.begin(path, layer)
        call.inputs = [_described(tensor) for tensor in take_apart((arguments, keywords), backend.is_tensor)[0]]
        try:
            result = forward(*arguments, **keywords)
        finally:
            stack.end(call)
        theirs = by_name.get((partner(path), call.ordinal))
        for number, tensor in enumerate(take_apart(result, backend.is_tensor)[0]):
            call.outputs.append(_described(tensor, sample_of(backend.values_of(tensor))))
            if theirs is not None and number < len(theirs.outputs):
                apart = distance_of_samples(call.outputs[-1].sample, theirs.outputs[number].sample)
                call.outputs[-1].inherited = apart if np.isfinite(apart) else None
        return result

    with backend.default_dtype(run.dtype), wrapped(backend.named_layers(run.model), around), backend.no_grad():
        inputs = run.inputs()
        outputs = around(FORWARD, None, lambda given: run.case.forward(run.model, given, run.framework), (inputs,), {})
        if type(run.case).loss is not Case.loss:
            around(LOSS, None, lambda given: run.case.loss(given, inputs, run.framework), (outputs,), {})
    return stack.calls


def _described(tensor: Any, sample: Sequence[float] = ()) -> Tensor:
    return Tensor(None, list(tensor.shape), str(tensor.dtype).rpartition(".")[2], sample=list(sample))


@dataclasses.dataclass(frozen=True)
class Projected:
    """A tensor of the reference by `recording.random_projections`, its shape and its root mean square."""

    shape: list[int]
    scale: float
    projections: list[float]


@dataclasses.dataclass
class Unit:
    """One forced call: a layer of the port with its partner, judged alone."""

    call: Call
    """The partner's call."""
    path: str
    layer: Any
    parent: Unit | None
    bound: float
    """Greatest relative difference that constants kept in float32 explain for layers of this class."""
    children: list[Unit] = dataclasses.field(default_factory=list)
    given: list[Any] = dataclasses.field(default_factory=list)
    """Inputs as the enclosing module's code made them, None for one that was the reference's own value."""
    inputs: list[Any] = dataclasses.field(default_factory=list)
    """Inputs as the reference had them."""
    outputs: list[Any] = dataclasses.field(default_factory=list)
    """What the layer returned."""
    handed_on: list[Any] = dataclasses.field(default_factory=list)
    """What the enclosing module got in its place."""
    differences: dict[str, Difference] = dataclasses.field(default_factory=dict)
    port: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    reference: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    steps: list[Step] = dataclasses.field(default_factory=list)
    """What the lines of its own code made."""

    @property
    def label(self) -> str:
        """Of the partner's call."""
        return self.call.label

    def judge(self, name: str, port: np.ndarray, reference: np.ndarray, scale: float | None = None) -> Difference:
        """Compare a value; one that differs is kept, with its partner."""
        found = difference(port, reference, scale, self.bound)
        if found.relative > self.bound:
            self.differences[name] = found
            self.port[name], self.reference[name] = np.array(port), np.array(reference)
        return found

    def judge_projections(self, name: str, port: np.ndarray, reference: Projected) -> Difference:
        """Compare a value with the reference's projections of it; the reference's own values come later, if need be."""
        if list(port.shape) != reference.shape:
            found = Difference(np.inf, text=f"shape {list(port.shape)}, the reference has {reference.shape}")
        else:
            rms = root_mean_square(random_projections(port) - np.array(reference.projections))
            relative = rms / reference.scale if reference.scale else (np.inf if rms else 0.0)
            found = Difference(relative, rms, reference_rms=reference.scale)
        if found.relative > self.bound:
            self.differences[name] = found
            self.port[name] = np.array(port)
        return found


def is_packed(layer: Any, tensors: Sequence[Any], partner: Call) -> bool:
    """Whether the reference's recurrent layer is given a packed sequence.

    That has an axis less than the padded one which paddle takes, and cannot be handed to the port's layer.
    """
    if not tensors or not partner.inputs or all(base.__name__ != "RNNBase" for base in type(layer).__mro__):
        return False
    return len(partner.inputs[0].shape) < len(tensors[0].shape)


class ForcedForward:
    """The forced pass; keeps the graph of every unit until `ForcedBackward` has judged its gradients."""

    def __init__(
        self,
        run: CaseRun,
        store: TensorStore,
        state_store: TensorStore,
        pairs: Mapping[tuple[str, int], Call],
        bound_of: Callable[[Any], float],
    ) -> None:
        """Take the pairs: (port's path, ordinal) → the partner's call."""
        self.run, self.backend = run, run.backend
        self.store, self.state_store = store, state_store
        self.pairs, self.bound_of = pairs, bound_of
        self.units: list[Unit] = []
        self._running: list[Unit] = []
        self._ordinals = CallStack()
        self._shared: dict[int, tuple[Any, int]] = {}
        """id of a tensor of the port → it, and the number of the reference's tensor that it stands for."""

    def __call__(self) -> Any:
        """Run forward and loss; returns the scalar to differentiate, None where there is no loss."""
        run = self.run
        with (
            self.backend.default_dtype(run.dtype),
            wrapped(self.backend.named_layers(run.model), self._around),
            OwnCode(self.backend, lambda: self._running[-1].steps if self._running else None).followed(),
        ):
            inputs = run.inputs()
            outputs = self._around(
                FORWARD, None, lambda given: run.case.forward(run.model, given, run.framework), (inputs,), {}
            )
            if type(run.case).loss is not Case.loss:
                losses = self._around(
                    LOSS, None, lambda given: run.case.loss(given, inputs, run.framework), (outputs,), {}
                )
                return scalar_loss(losses)
            return None

    def _around(self, path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        own = self._ordinals.begin(path, layer)
        partner = self.pairs.get((path, own.ordinal))
        tensors, signature = take_apart((arguments, keywords), self.backend.is_tensor)
        if partner is not None and is_packed(layer, tensors, partner):
            partner = None
        if partner is None:  # without a partner a layer counts as code of the module around it
            try:
                return forward(*arguments, **keywords)
            finally:
                self._ordinals.end(own)
        parent = self._running[-1] if self._running else None
        unit = Unit(partner, path, layer, parent, self.bound_of(layer))
        if parent is not None:
            parent.children.append(unit)
        self.units.append(unit)
        self._force_inputs(unit, tensors)
        if layer is not None:
            self._force_state(unit, partner.state, "before")
        self._running.append(unit)
        try:
            forced = put_together(signature, unit.inputs)
            result = forward(*forced[0], **forced[1])
        finally:
            self._running.pop()
            self._ordinals.end(own)
        returned, skeleton = take_apart(result, self.backend.is_tensor)
        self._force_outputs(unit, returned)
        if layer is not None:
            self._after(unit, forward, forced)
        return put_together(skeleton, unit.handed_on)

    def _force_inputs(self, unit: Unit, tensors: Sequence[Any]) -> None:
        """Judge what the enclosing code hands to the unit, and hand it what the reference handed to its partner."""
        if len(tensors) != len(unit.call.inputs):
            unit.notes.append(f"is given {len(tensors)} tensors, its partner {len(unit.call.inputs)}")
        owner = unit.parent or unit
        for number, tensor in enumerate(tensors):
            if number >= len(unit.call.inputs):
                unit.given.append(None)
                unit.inputs.append(tensor)
                continue
            theirs = unit.call.inputs[number]
            known = self._shared.get(id(tensor))
            if known is not None and known[0] is tensor and known[1] == theirs.number:
                unit.given.append(tensor)
                unit.inputs.append(self.backend.detached(tensor, theirs.differentiable))
                continue
            name = f"input.{unit.label}.{number}"
            unit.given.append(tensor)
            unit.inputs.append(self._forced(owner, name, tensor, theirs, unit.parent is not None))

    def _force_outputs(self, unit: Unit, returned: Sequence[Any]) -> None:
        if len(returned) != len(unit.call.outputs):
            unit.notes.append(f"returns {len(returned)} tensors, its partner {len(unit.call.outputs)}")
            # What the code around a layer does not use may be there or not, as the weights that torch's attention
            # returns. What it needs and lacks shows in what it makes of the others.
            if unit.parent is None or unit.parent.layer is None:
                unit.differences["output"] = Difference(np.inf, text=unit.notes[-1])
        for number, tensor in enumerate(returned):
            unit.outputs.append(tensor)
            if number >= len(unit.call.outputs):
                unit.handed_on.append(tensor)
                continue
            theirs = unit.call.outputs[number]
            unit.handed_on.append(self._forced(unit, f"output.{number}", tensor, theirs, not unit.call.random))

    def _forced(self, owner: Unit, name: str, tensor: Any, theirs: Tensor, judged: bool) -> Any:
        """The reference's values in place of a tensor, judged by the way; the tensor itself where both are the same."""
        assert theirs.number is not None
        reference = self.store.read(theirs.number)
        port = self.backend.values_of(tensor)
        found = owner.judge(name, port, reference, theirs.scale) if judged else Difference(np.inf)
        if found.relative <= SHARED:
            forced = self.backend.detached(tensor, theirs.differentiable)
        else:
            made = self.backend.to_tensor(reference, self.run.dtype, self.run.device)
            forced = self.backend.detached(made, theirs.differentiable)
        self._shared[id(forced)] = (forced, theirs.number)
        return forced

    def _force_state(self, unit: Unit, state: Mapping[str, int], when: str) -> None:
        """Judge parameters and buffers that the pass has moved, and give them the reference's values."""
        own = self.backend.own_state(unit.layer)
        names = {self._whole_part(unit.path, name).name: name for name in own}
        owner = unit if when == "after" else self._outermost(unit)
        for theirs, number in state.items():
            full = f"{unit.call.path}.{theirs}".lstrip(".")
            name = names.get(full)
            if name is None:
                continue
            reference = self.state_store.read(number)
            part = self._whole_part(unit.path, name)
            port = self.backend.to_array(own[name])
            label = f"buffer.{theirs}" if owner is unit else f"state.{full}"
            found = owner.judge(label, part.to_reference(port), reference)
            if found.relative > SHARED:
                self.backend.assign(own[name], part.from_reference(reference))

    def _outermost(self, unit: Unit) -> Unit:
        while unit.parent is not None:
            unit = unit.parent
        return unit

    def _whole_part(self, path: str, name: str) -> CanonicalName:
        """What a tensor of a layer is on the reference side; what has no one partner there keeps its name."""
        key = f"{path}.{name}".lstrip(".")
        parts = [part for part in self.run.canonical.parts(key) if part.rows is None and part.place is None]
        return parts[0] if parts else CanonicalName(key)

    def _after(self, unit: Unit, forward: Callable[..., Any], forced: tuple) -> None:
        """Judge the buffers that the call has moved, and the same call in evaluation mode."""
        if not unit.call.state_after:
            return
        self._force_state(unit, unit.call.state_after, "after")
        if not unit.call.evaluation:
            return
        with in_evaluation_mode(unit.layer), self.backend.no_grad(), OwnCode.unfollowed():
            returned, _ = take_apart(forward(*forced[0], **forced[1]), self.backend.is_tensor)
        for number, (tensor, theirs) in enumerate(zip(returned, unit.call.evaluation, strict=False)):
            assert theirs.number is not None
            port, reference = self.backend.values_of(tensor), self.store.read(theirs.number)
            unit.judge(f"eval.output.{number}", port, reference, theirs.scale)
