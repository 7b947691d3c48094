"""One call of the port in the forced pass: what went in and out, and what is wrong with it."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from types import CodeType
from typing import Any

import numpy as np

from twinalign.files.recordings import random_projections
from twinalign.replay.code_lines import Function, Step
from twinalign.replay.layer_calls import Call
from twinalign.replay.mask_forms import Form
from twinalign.replay.wrong_unit import phase_of
from twinalign.verdict.array_difference import OF_SHAPES, Difference, difference, quick_root_mean_square

LONGEST_REASON = 200
"""Characters of the reason why a layer is left out."""
SHARED = 1e-12
"""Up to this relative difference the port's own tensor is passed on, which saves the memory of a second copy. Before a
layer is called wrong, its response to noise of this size is measured (`rerun_unit.PERTURBATION`)."""


@dataclasses.dataclass(frozen=True)
class Projected:
    """A tensor of the reference by its shape, root mean square and `recordings.random_projections`."""

    shape: list[int]
    scale: float
    projections: list[float]


class UnitFailedError(Exception):
    """A layer, or the code around layers, that does not run on the reference's values."""

    def __init__(self, unit: ForcedCall, error: Exception) -> None:
        text = str(error).strip().partition("\n")[0]
        super().__init__(f"on the reference's values it raises {type(error).__name__}: {text}"[:LONGEST_REASON])
        self.unit = unit


@dataclasses.dataclass(eq=False)
class ForcedCall:
    """One call in the forced pass: a layer of the port, or the code around its layers, judged alone."""

    call: Call
    """The partner's call."""
    path: str
    layer: Any
    parent: ForcedCall | None
    bound: float
    """Greatest relative difference that constants kept in float32 explain for layers of this class."""
    wanted: Collection[str] = ()
    """Values that are kept though they do not differ."""
    children: list[ForcedCall] = dataclasses.field(default_factory=list)
    order: list[int] = dataclasses.field(default_factory=list)
    """Places, among the tensors in its arguments, of those that stand for its partner's inputs."""
    given: list[Any] = dataclasses.field(default_factory=list)
    """Inputs as the enclosing module's code computed them; None for one without a partner."""
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
    lacking: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """`input.I`, `output.I` → the reference's values of what the port's call is not given, or does not return."""
    given_again: dict[int, list[int]] = dataclasses.field(default_factory=dict)
    """Place of an input → further places that hold the same tensor in the reference's call, and that the port's lacks:
    keys and values of an attention, which a port may take once. Their gradients belong to that one."""
    repeated: list[Call] = dataclasses.field(default_factory=list)
    """The reference's further calls of the same on the same values: the port uses what this one returns for all."""
    not_judged: set[str] = dataclasses.field(default_factory=set)
    """Gradients of parameters that other units share, where those of tensors are wrong, and these for that; results
    that nothing uses."""
    steps: list[Step] = dataclasses.field(default_factory=list)
    """Tensors that the lines of its own code computed."""
    functions: dict[CodeType, Function] = dataclasses.field(default_factory=dict)
    """Its own code."""
    layouts: dict[str, Form] = dataclasses.field(default_factory=dict)
    """`input.CALL.I`, `output.CALL.I` → the form in which the port has this tensor, if it is another."""
    forms: list[tuple[ForcedCall, str, Difference, np.ndarray, np.ndarray]] = dataclasses.field(default_factory=list)
    """Of inputs in another form: who gave them, and the difference that this is if nobody meant it."""
    has_blamed_forms: bool = False
    """Whether it is right on inputs in the reference's form alone."""
    extra: list[int] = dataclasses.field(default_factory=list)
    """For each layer without a partner that its own code called, how many of `children` came before."""
    ended: bool = False
    """Whether it ran to its end: of a call that did not, the gradients are of a part alone."""
    takes_joined: bool = False
    """Whether its inputs are joined, or those of its partner (`is_joined`)."""
    apart: float = 0.0
    """Greatest relative difference of what it returns."""
    signature: Any = None
    """Its arguments without their tensors."""
    result: tuple[Any, Sequence[int]] = (None, ())
    """The port's containers of what it returns, and which of the tensors handed on stands in each place there."""
    counted: Counter[str] = dataclasses.field(default_factory=Counter)
    """Path of a layer → how often it was called inside."""
    given_up: set[int] = dataclasses.field(default_factory=set)
    """Numbers of the calls inside that ran without their pairs."""
    versions: list[int] = dataclasses.field(default_factory=list)
    """Of inputs and tensors handed on, when it ended: they change if one of these is changed in place."""

    @property
    def label(self) -> str:
        return self.call.label

    def wrong_ends(self) -> dict[str, Difference]:
        """What differs in the forward pass: inputs that its own code gives to its layers, and what it returns."""
        return {name: found for name, found in self.differences.items() if phase_of(name) == "forward"}

    def anew(self) -> ForcedCall:
        """The same call before it runs; its inputs are to be set."""
        unit = ForcedCall(self.call, self.path, self.layer, self.parent, self.bound, self.wanted)
        unit.given, unit.forms, unit.signature = self.given, self.forms, self.signature
        unit.order, unit.given_again = self.order, self.given_again
        unit.layouts = {place: layout for place, layout in self.layouts.items() if place.startswith("input.")}
        return unit

    def inside(self) -> Iterator[ForcedCall]:
        """Every unit inside this one."""
        for child in self.children:
            yield child
            yield from child.inside()

    def passed_on(self) -> list[Any]:
        """The tensors that it shares with the code around it."""
        return [*self.inputs, *self.handed_on]

    def state_alone(self) -> ForcedCall:
        """This call with what is wrong in its buffers alone."""
        wrong = {name: found for name, found in self.differences.items() if phase_of(name) == "state"}
        return dataclasses.replace(self, differences=wrong, children=[], outputs=[], handed_on=[], steps=[])

    def judge(self, name: str, port: np.ndarray, reference: np.ndarray, scale: float | None = None) -> Difference:
        """Compare a value; if it differs, keep it and the reference's."""
        found = difference(port, reference, scale, self.bound)
        if found.relative > self.bound:
            self.keep(name, found, np.array(port), np.array(reference))
        elif name in self.wanted:
            self.port[name], self.reference[name] = np.array(port), np.array(reference)
        return found

    def keep(self, name: str, found: Difference, port: np.ndarray, reference: np.ndarray) -> None:
        """Keep a difference with both sides' values."""
        self.differences[name], self.port[name], self.reference[name] = found, port, reference

    def blame_forms(self) -> None:
        """Blame the code that gave the inputs another form, and not this unit, which expects the reference's."""
        self.has_blamed_forms = True
        for owner, name, found, port, reference in self.forms:
            owner.keep(name, found, port, reference)
        self.differences, self.port, self.reference = {}, {}, {}

    def judge_projections(self, name: str, port: np.ndarray, reference: Projected) -> Difference:
        """Compare a value with projections of the reference's."""
        if list(port.shape) != reference.shape:
            found = Difference(np.inf, text=f"{OF_SHAPES}{list(port.shape)}, the reference has {reference.shape}")
        else:
            rms = quick_root_mean_square(random_projections(port) - np.array(reference.projections))
            relative = rms / reference.scale if reference.scale else (np.inf if rms else 0.0)
            found = Difference(relative, rms, reference_rms=reference.scale)
        if found.relative > self.bound:
            self.differences[name] = found
        if name in self.differences or name in self.wanted:
            self.port[name] = np.array(port)
        return found


def is_stacked(tensors: Sequence[Any], partner: Call) -> bool:
    """Whether one side's layer is given a stack of what the other's is given as a list of tensors."""
    few, many = sorted((tensors, partner.inputs), key=len)
    axes = [max((len(one.shape) for one in side), default=0) for side in (few, many)]
    return is_joined(tensors, partner.inputs) and axes[0] == axes[1] + 1


def is_joined(tensors: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Whether one side has in fewer tensors, stacked or concatenated, what the other has in several."""
    sizes = [sum(math.prod(one.shape) for one in side) for side in (tensors, theirs)]
    return 0 < len(tensors) != len(theirs) > 0 and sizes[0] == sizes[1]


def is_packed(layer: Any, tensors: Sequence[Any], partner: Call) -> bool:
    """Whether the reference's recurrent layer gets a packed sequence, which paddle's layers cannot take.

    It has one axis less than a padded sequence.
    """
    if not tensors or not partner.inputs or all(base.__name__ != "RNNBase" for base in type(layer).__mro__):
        return False
    return len(partner.inputs[0].shape) < len(tensors[0].shape)
