"""The form of a planted fault, and the registry that holds them all.

A fault is one function in a module of `twinalign.planted_faults.faults`, with a decorator that says where it can be
planted, in which stage it must show and which causes explain it::

    @in_forward(layers("LayerNorm"), "norm_epsilon")
    def layer_norm_epsilon(site: ModelSite) -> None:
        \"\"\"LayerNorm's epsilon is ten times too large.\"\"\"
        site.layer._epsilon *= 10

Faults are written against paddle's interface but import nothing of it: a place hands them what they change, so that the
catalogue can be listed without paddle.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinalign.planted_faults.case_contents import CaseContents

KINDS = (
    *("weights", "forward", "state", "backward", "loss", "optimizer", "schedule"),
    *("data", "metric", "train", "initial"),
)
"""What a fault spoils."""

_SHOWN_IN = {"weights": "forward", "state": "forward", "optimizer": "backward", "schedule": "backward"}


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
        causes: ids of the causes that count as the right cause.
        also: patterns of places that may be named in the place's stead.
        besides: patterns of places that may be named with it, for they are rightly wrong as a consequence.
        named: what the place is called by who locates it, where that is a component and not the place's own path.
    """

    id: str
    kind: str
    text: str
    hook: str
    stage: str
    find: Callable[[CaseContents], str | None]
    plant: Callable[[Any], object]
    causes: tuple[str, ...]
    also: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()
    named: str | None = None


_registered: dict[str, PlantableFault] = {}


@dataclasses.dataclass(frozen=True)
class Registration:
    """Puts a fault into the catalogue: a decorator of functions, with `add` for what is one expression.

    The attributes are those of `PlantableFault`; the stage follows from the kind. A function's name is its id, and the
    first line of its docstring its text. `how` turns the function (or what else `add` is given) into what plants it; by
    default it does so itself.
    """

    hook: str
    kind: str
    find: Callable[[CaseContents], str | None]
    causes: tuple[str, ...]
    also: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()
    named: str | None = None
    id: str = ""
    how: Callable[[Any], Callable[[Any], object]] = lambda run: run

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        text = (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        dataclasses.replace(self, id=function.__name__).add(text, function)
        return function

    def add(self, text: str, run: Any) -> None:
        if self.kind not in KINDS or not text:
            raise ValueError(f"{self.id}: give a kind of {', '.join(KINDS)} and a docstring")
        if self.id in _registered:
            raise ValueError(f"{self.id}: there is a fault of this name: {_registered[self.id].text}")
        given = {name: value for name, value in vars(self).items() if name != "how"}
        stage = _SHOWN_IN.get(self.kind, self.kind)
        _registered[self.id] = PlantableFault(**given, text=text, stage=stage, plant=self.how(run))


def _register(
    hook: str, kind: str, find: Callable[[CaseContents], str | None], *causes: str, **others: Any
) -> Registration:
    return Registration(hook, kind, find, causes, **others)


in_model = functools.partial(_register, "model")
"""Faults in a model that was just built: `in_model(kind, find, *causes, also=(), ...)`."""
in_forward = functools.partial(in_model, "forward")
"""Those that the forward pass shows: `in_forward(find, *causes, also=(), ...)`."""
in_initial = functools.partial(in_model, "initial")
"""Faults in how a model that was just built starts: `in_initial(find, *causes)`."""
in_weights = functools.partial(_register, "weights", "weights")
"""Faults in a model that was just given its weights: `in_weights(find, *causes)`."""
in_case = functools.partial(_register, "case")
"""Faults in the methods of a case: `in_case(kind, find, *causes)`."""
in_process = functools.partial(_register, "process")
"""Faults in functions of a library while they are planted: `in_process(kind, find, *causes)`."""


def catalogue() -> Mapping[str, PlantableFault]:
    """Every fault by id, in the order of `KINDS`."""
    _discover()
    return {fault.id: fault for fault in sorted(_registered.values(), key=lambda fault: KINDS.index(fault.kind))}


@functools.cache
def _discover() -> None:
    package = importlib.import_module("twinalign.planted_faults.faults")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        importlib.import_module(f"{package.__name__}.{module.name}")
