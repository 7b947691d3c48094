"""The registry of hypotheses: what can be wrong in a port, and how to make the reference wrong in the same way.

A hypothesis is one small class in a module of this package; nothing else lists it::

    @register
    class GeluForm(Rewrite):
        id = "gelu_form"
        phase = "forward"
        text = "GELU is in the other form (tanh approximation or exact)"
        ...
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from twinalign.locate.faults import PHASES


class Variant(Protocol):
    """One way in which a hypothesis can hold, say one value of a constant or one place in a layer's code."""

    @property
    def detail(self) -> str:
        """What distinguishes this variant, appended to the hypothesis's text; may be empty."""

    def apply(self) -> contextlib.AbstractContextManager[Any]:
        """Within the context the reference (or the component of it in question) is wrong in this way."""


class Hypothesis:
    """A possible cause of a difference between reference and port.

    Attributes:
        id: its name in reports and in `locate --json`, in snake case; unique among those of its phase.
        phase: one of `twinalign.locate.faults.PHASES`, where the fault shows first.
        text: the cause in one sentence about the port, without a full stop.
        difference: the difference between the frameworks that leads to it, by its id in docs/differences.md, if any.
        rank: hypotheses of lower rank are tried first; generic ones come last.
        float32_constants: whether the port computes with a number that paddle may keep in float32, by which it then
            differs from what the hypothesis gives.
    """

    id: ClassVar[str]
    phase: ClassVar[str]
    text: ClassVar[str]
    difference: ClassVar[str | None] = None
    rank: ClassVar[int] = 0
    float32_constants: ClassVar[bool] = False

    def variants(self, subject: Any) -> Iterable[Variant]:
        """The ways in which this can hold of `subject`, the likeliest first; none where it does not apply.

        What a subject is depends on the phase: of forward, backward and state it is
        `twinalign.explain.subject.LayerSubject`, of the others what their module in this package says.
        """
        raise NotImplementedError


HypothesisClass = TypeVar("HypothesisClass", bound=type[Hypothesis])

_registered: dict[tuple[str, str], Hypothesis] = {}


def register(kind: HypothesisClass) -> HypothesisClass:
    """Class decorator that enters a hypothesis; raises ValueError on an id that its phase has, or another phase."""
    for attribute in ("id", "phase", "text"):
        if not getattr(kind, attribute, ""):
            raise ValueError(f"{kind.__module__}.{kind.__qualname__}: give {attribute}")
    if kind.phase not in PHASES:
        raise ValueError(f"{kind.id}: phase {kind.phase!r} is none of {', '.join(PHASES)}")
    key = kind.phase, kind.id
    if key in _registered:
        raise ValueError(f"{kind.id}: already registered by {type(_registered[key]).__qualname__}")
    _registered[key] = kind()
    return kind


def hypotheses(*phases: str) -> Sequence[Hypothesis]:
    """All hypotheses of these phases (of all phases where none is named), by rank, then in order of entry."""
    _discover()
    found = [item for item in _registered.values() if not phases or item.phase in phases]
    return sorted(found, key=lambda item: item.rank)


@functools.cache
def _discover() -> None:
    """Import every module of this package, so that all hypotheses are entered."""
    package = importlib.import_module(__package__ or "twinalign.explain")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        importlib.import_module(f"{package.__name__}.{module.name}")
