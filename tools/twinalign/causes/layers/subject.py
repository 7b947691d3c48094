"""A unit of the reference under examination: its calls, what is known of the port, and runs with changed calls."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only import operations
from twinalign.backends.torch.reference_only.operations import HANDED, UNIT, Change, FunctionCall, Key, Site, Value
from twinalign.replay.code_lines import Print, line_within, print_of
from twinalign.replay.constants import constants_in_sources, factor_in_words
from twinalign.replay.unit_program import Program, group_calls, matching, wrong_ends
from twinalign.replay.wrong_unit import WrongUnit, rewriting

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\s*[=:]\s*(-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")
_LITERAL = re.compile(r"(?<![\w.])\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
NAMES_OF_PHASE = {"forward": ("output.", "input.", "eval."), "backward": ("gradient.",), "state": ("buffer.", "state.")}
"""Which of the unit's values a phase is about."""


@dataclasses.dataclass(frozen=True)
class CallVariant:
    """A way to be wrong that consists of calls made in another way; the module is None for a function."""

    detail: str
    changes: Mapping[Key, Change]
    module: Any = None
    reads: frozenset[Key] = frozenset()
    """Calls whose results later ones read again, through `FunctionCall.earlier`."""

    def apply(self, each: bool = False) -> contextlib.AbstractContextManager[Any]:
        """In the context the unit runs in this way; in all of its calls if `each`."""
        context: contextlib.AbstractContextManager[Any] = rewriting().intercepting(self.module, self.made(), each)
        return context

    def made(self) -> Callable[[FunctionCall], Any]:
        """The handler of one run's calls that makes them in this way."""
        earlier: dict[Key, list[Any]] = {}

        def handle(call: FunctionCall) -> Any:
            change = self.changes.get(call.key)
            call.earlier = earlier
            returned = call.run() if change is None else change(call)
            if call.key in self.reads:
                earlier[call.key] = list(rewriting().tensors_in(returned))
            return returned

        return handle

    def watched(self, watch: Callable[[Change, FunctionCall], Any]) -> CallVariant:
        """The same with each change made by `watch`."""
        return dataclasses.replace(self, changes={k: functools.partial(watch, c) for k, c in self.changes.items()})

    def merged(self, other: CallVariant) -> CallVariant:
        """Both at once; where both change one call, `other` lies over this one."""
        changes = {**other.changes, **self.changes}
        for key in self.changes.keys() & other.changes.keys():
            changes[key] = functools.partial(_stacked, self.changes[key], other.changes[key])
        return CallVariant(
            "; ".join(filter(None, (self.detail, other.detail))), changes, self.module, self.reads | other.reads
        )


@dataclasses.dataclass(frozen=True)
class ValueVariant:
    """A way to be wrong that changes the unit's values, by name, as a whole, not how they come about."""

    detail: str
    adjust: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

    def apply(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def _stacked(inner: Change, outer: Change, call: FunctionCall) -> Any:
    return outer(call.through(inner))


class LayerSubject:
    """What causes in the phases forward, backward and state are given.

    Attributes:
        unit: the unit.
        module: the reference's module, None for the loss and for the case's own forward.
        port: the port's values that differ, to be reproduced.
        reference: the reference's own.
        differs_in_floats: whether any of these is no whole number.
        mended: what is changed already in the calls that are looked at, None for nothing.
        right_lines: of the port, those that are known to compute what the reference's do.
    """

    def __init__(self, unit: WrongUnit, mended: CallVariant | None = None) -> None:
        self.unit, self.mended = unit, mended
        self.module = unit.module
        self._held, self._seen, self.right_lines = unit.held, set[int](), list[tuple[str, int, int]]()
        self.port = self._differing(unit.port)
        self.reference = self._differing(unit.reference)
        self.differs_in_floats = any(np.asarray(value).dtype.kind in "fc" for value in self.port.values())

    def _differing(self, values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return {name: value for name, value in values.items() if name not in self._held}

    @property
    def backward(self) -> bool:
        """Whether gradients are to be explained."""
        return self.unit.phase == "backward"

    def run(self, variant: Any = None, moved: float = 0.0) -> Mapping[str, np.ndarray]:
        """The unit's values, under a variant if one is given; module and generators are left as they were.

        `moved`: relative size of the noise on inputs and parameters.
        """
        if isinstance(variant, ValueVariant):
            values = self.unit.run(moved) if moved else self.traced[0]
            return {**values, **variant.adjust(self._differing(values))}
        with rewriting().unchanged(self.module), variant.apply() if variant else contextlib.nullcontext():
            return self.unit.run(moved) if moved else self.unit.run()

    @functools.cached_property
    def traced(self) -> tuple[Mapping[str, np.ndarray], list[Site]]:
        """Values of the unit, unmodified but for `mended`, and its calls in the order in which they return."""
        calls: list[Site] = []
        backend, outside = rewriting(), sys._getframe().f_code
        make = self.mended.made() if self.mended else FunctionCall.run
        made: dict[int, tuple[Any, Value]] = {}  # with the tensor, so that no other one takes its place in memory

        def handle(call: FunctionCall) -> Any:
            given = backend.facts_of(call.arguments, call.name_of, made)
            returned = make(call)
            tensors = list(backend.tensors_in(returned))
            seen = [matching(self.prints, tensor) for tensor in tensors]
            self._seen.update(*seen)
            tensors = [] if call.name == HANDED else tensors
            inner = tuple(made[id(tensor)][1].key for tensor in tensors if id(tensor) in made)
            if call.name != UNIT:
                made.update({id(tensor): (tensor, Value(call.key, at)) for at, tensor in enumerate(tensors)})
            results = backend.facts_of(tensors, call.name_of, made)
            line = line_within(outside)
            calls.append(
                Site(call.key, given, results, len(calls), line, call.in_place, bool(seen) and all(seen), 0, inner)
            )
            return returned

        with backend.unchanged(self.module), backend.intercepting(self.module, handle):
            values = self.unit.run()
        return values, calls

    @functools.cached_property
    def prints(self) -> list[Print]:
        """What the port is known to compute in the forward pass: in the lines of its code, and as results."""
        ended = self.unit.port.items() if self.unit.phase == "forward" else ()
        steps = [(tuple(shape), sample) for shape, sample in (one["print"] for one in getattr(self.unit, "steps", ()))]
        return [*steps, *(print_of(array) for name, array in ended if array.dtype.kind == "f")]

    @functools.cached_property
    def lacking(self) -> list[Print]:
        """What of that no call here returns."""
        return [one for at, one in enumerate(self.prints) if self.traced and at not in self._seen]

    @functools.cached_property
    def sites(self) -> list[Site]:
        """Calls that return a tensor or switch gradients, each once, in the order in which they return."""
        found: dict[Key, Site] = {}
        for call in self.traced[1]:
            if call.results or call.name == operations.GRADIENT_MODE:
                found.setdefault(call.key, call)
        return list(found.values())

    def named(self, *names: str) -> list[Site]:
        return [site for site in self.sites if site.name in names]

    def leads_to(self, site: Site, *names: str) -> bool:
        """Whether a call of one of these functions depends on what this call returns."""
        return any(key[0] in names for key in self.behind(site) - {site.key})

    def behind(self, site: Site) -> set[Key]:
        """This call and those that depend on what it returns."""
        reached = {site.key}
        for call in self.traced[1]:
            if not reached.isdisjoint(call.givers):
                reached.add(call.key)
        return reached

    def variant(self, detail: str, changes: Mapping[Key, Change]) -> CallVariant:
        return CallVariant(detail, changes, self.module)

    def values_of(self, name: str) -> np.ndarray | None:
        """Values of one of the unit's parameters or buffers, None where there is none of this name."""
        owned = () if self.module is None else (self.module.named_parameters(), self.module.named_buffers())
        tensor = dict(itertools.chain(*owned)).get(name)
        return None if tensor is None else np.asarray(tensor.detach().cpu().numpy())

    def weights_alone(self, only_all: bool = False) -> Mapping[str, Any]:
        """What the port's layer stores and the reference's does not; if `only_all`, where that is all of it."""
        find = getattr(self.unit, "weights_alone", None)
        return dict(find(only_all)) if find is not None else {}

    @functools.cached_property
    def port_numbers(self) -> Mapping[str, float]:
        """Every number known of the port's layer, by attribute name in lower case without leading underscores."""
        numbers: dict[str, float] = {}
        for name, value in self.unit.facts.items():
            if isinstance(value, str):
                numbers.update({word.lower().lstrip("_"): float(text) for word, text in _ASSIGNMENT.findall(value)})
            elif isinstance(value, (bool, int, float)):
                numbers[str(name).lower().lstrip("_")] = float(value)
        return numbers

    def words_of_factor(self, factor: float) -> str:
        """A number by which the port's values are too large, and what in the code of both sides makes it."""
        port = [*self._written_constants, *self.port_numbers.values()]
        products = [(site.number, site.name) for site in self.named("mul", "div") if site.number]
        theirs = [number if name == "mul" else 1.0 / number for number, name in products if number]
        words = factor_in_words(factor, port, theirs)
        return f"{factor:.9g}{f' ({words})' if words else ''}"

    @functools.cached_property
    def _written_constants(self) -> list[float]:
        functions = getattr(self.unit, "functions", ())
        return constants_in_sources(textwrap.dedent(function["source"]) for function in functions)

    @functools.cached_property
    def program(self) -> Program:
        """The program that the unit ran by when it was traced."""
        calls = self.traced[1]
        group_calls(calls)
        texts = [call.line.partition(": ")[2] for call in calls]
        texts += [step["source"] for step in getattr(self.unit, "steps", ())]
        literals = {float(found) for text in dict.fromkeys(texts) for found in _LITERAL.findall(text)}
        literals |= set(self.port_numbers.values())
        owned = () if self.module is None else (*self.module.named_buffers(), *self.module.named_parameters())
        mended, ends = self.mended is not None, wrong_ends(self.port, self.unit.children)
        return Program(calls, sorted(literals), dict(owned), mended, ends)

    @functools.cached_property
    def tried_first(self) -> list[Site]:
        """Calls of a long unit whose changes are tried before those of others: where the port's values end."""
        return self.program.near() if not self.backward and self.program.is_long else []

    def candidates(self, words: Sequence[str], usual: Sequence[float], current: float) -> list[float]:
        """Values that a constant of the port may have: its own attributes first, then `usual`; never `current`."""
        own = [value for name, value in self.port_numbers.items() if name in words]
        return list(dict.fromkeys((current, *own, *usual)))[1:]
