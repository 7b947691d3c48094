"""The form of a planted fault, and the registry that holds them all.

A fault is one function in a module of `twinalign.selftest.faults`, with a decorator that says where it can be planted,
in which stage it must show and which hypotheses name its cause::

    @in_model("forward", layers("LayerNorm"), causes=("epsilon",))
    def layer_norm_epsilon(place: ModelPlace) -> None:
        \"\"\"LayerNorm's epsilon is ten times too large.\"\"\"
        place.layer._epsilon *= 10

Faults are written against paddle's interface but import nothing of it: a place hands them what they change, so that the
catalogue can be listed without paddle.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinalign.selftest.survey import Survey

KINDS = ("weights", "forward", "state", "backward", "loss", "optimizer", "schedule", "data", "metric", "train")
"""What a fault spoils."""

_SHOWN_IN = {
    "weights": "forward",
    "forward": "forward",
    "state": "forward",
    "optimizer": "backward",
    "schedule": "backward",
}


@dataclasses.dataclass(frozen=True)
class PlantableFault:
    """One fault of the catalogue.

    Attributes:
        id: the function's name.
        kind: one of `KINDS`.
        text: the function's first line: what is wrong in the port, in one sentence.
        hook: when it is planted: `"model"` (into a model that was just built), `"weights"` (after its weights have been
            loaded), `"case"` (into a case that was just loaded) or `"process"` (once).
        stage: the first stage of the guide that must diverge.
        find: the place in a case (path of a layer, or a component's name), None where the fault does not apply.
        plant: spoils the place.
        causes: ids of the hypotheses that count as the right cause.
        also: patterns of places that may be named in the place's stead.
        besides: patterns of places that may be named with it, for they are rightly wrong as a consequence.
        named: what the place is called by who locates it, where that is a component and not the place's own path.
    """

    id: str
    kind: str
    text: str
    hook: str
    stage: str
    find: Callable[[Survey], str | None]
    plant: Callable[[Any], None]
    causes: tuple[str, ...]
    also: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()
    named: str | None = None


_registered: dict[str, PlantableFault] = {}


def _register(
    hook: str,
    kind: str,
    find: Callable[[Survey], str | None],
    causes: Sequence[str],
    also: Sequence[str] = (),
    besides: Sequence[str] = (),
    stage: str | None = None,
    named: str | None = None,
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    def decorate(function: Callable[[Any], None]) -> Callable[[Any], None]:
        name = function.__name__
        text = (function.__doc__ or "").strip().splitlines()[0].rstrip(".") if function.__doc__ else ""
        if kind not in KINDS or not text:
            raise ValueError(f"{name}: give a kind of {', '.join(KINDS)} and a docstring")
        if name in _registered:
            raise ValueError(f"{name}: there is a fault of this name in {_registered[name].plant.__module__}")
        shown_in = stage or _SHOWN_IN.get(kind, kind)
        _registered[name] = PlantableFault(
            name, kind, text, hook, shown_in, find, function, tuple(causes), tuple(also), tuple(besides), named
        )
        return function

    return decorate


in_model = functools.partial(_register, "model")
"""Decorator of faults in a model that was just built: `in_model(kind, find, causes, also=(), ...)`."""

in_weights = functools.partial(_register, "weights", "weights")
"""Decorator of faults in a model that was just given its weights: `in_weights(find, causes)`."""

in_case = functools.partial(_register, "case")
"""Decorator of faults in the methods of a case: `in_case(kind, find, causes)`."""

in_process = functools.partial(_register, "process")
"""Decorator of faults in functions of a library while they are planted: `in_process(kind, find, causes)`."""


def catalogue() -> Mapping[str, PlantableFault]:
    """Every fault by id, in the order of `KINDS`."""
    _discover()
    return {fault.id: fault for fault in sorted(_registered.values(), key=lambda fault: KINDS.index(fault.kind))}


@functools.cache
def _discover() -> None:
    package = importlib.import_module("twinalign.selftest.faults")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        importlib.import_module(f"{package.__name__}.{module.name}")
