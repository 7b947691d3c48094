"""The registry of causes: what can be wrong in a port, and how to make the reference wrong in the same way.

A cause is one decorated function in a module of this package, or a row of a table there; nothing else lists it. The
function's name is the id, the first sentence of its docstring the text, its decorator says in which phase the fault
shows and what is examined::

    @cause("train", TrainingSubject)
    def training_steps_skipped(subject):
        \"\"\"Some steps of the optimizer are skipped.\"\"\"
        yield subject.trained("every second one", ...)
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

PHASES = ("forward", "backward", "state", "optimizer", "data", "metric", "train", "ranks", "initial")
"""Where a fault shows: outputs, gradients, buffers and moving averages, updates, the input pipeline, the metric,
training curves, the work of several ranks, freshly built models."""


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A proven cause: applied to the reference, it reproduces the port's wrong values.

    Attributes:
        id: the cause's id in the registry.
        text: the cause in one sentence, with the values that reproduced it.
        confirmed: always true: causes that do not reproduce the port are not stated.
        evidence: the error before (`unexplained_error`) and after (`remaining_error`), for a layer relative to the size
            of the values, for another component relative to the error before; and further facts.
    """

    id: str
    text: str
    confirmed: bool = True
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class Variant(Protocol):
    """One form of a cause, such as one value of a constant or one place in a layer's code."""

    @property
    def detail(self) -> str:
        """What distinguishes this variant from others, appended to the cause's text; may be empty."""

    def apply(self) -> contextlib.AbstractContextManager[Any]:
        """Within the context the reference is wrong in this way."""


@dataclasses.dataclass(frozen=True)
class Within:
    """A variant whose context is made by a function."""

    detail: str
    apply: Callable[[], contextlib.AbstractContextManager[Any]]


Find = Callable[[Any], Iterable[Variant]]


@dataclasses.dataclass(frozen=True)
class Cause:
    """A possible cause of a difference between reference and port.

    Attributes:
        id: name in reports and in `locate --json`, in snake case; unique in its phase.
        phase: where the fault shows first, one of `PHASES`.
        text: the cause in one sentence about the port, without a full stop.
        subject: class of what is examined; for anything else the cause has no variants.
        find: returns the variants for a subject, the likeliest first; none if the cause does not apply.
        where: whether the cause can apply to a subject at all; asked before `find`.
        difference: id of the difference between the frameworks that leads to it (docs/differences.md), if any.
        rank: causes of lower rank are tried first; generic ones come last.
        float32_constants: whether the port computes with a number that paddle may keep in float32, which alone makes a
            small difference from what the cause predicts.
        plain: whether it is one edit with a name: of one rank, it is tried before what takes more to say.
        alone: whether it is tried after all others, without a second one, and must give the port exactly.
        own_code: whether its variants are lines of the port itself, which are tried before all others: what fits then
            is what the port does, and another cause is only another name for it.
        drops: whether it leaves out an operation, so that it is no name for a line that makes as many.
    """

    id: str
    phase: str
    text: str
    subject: type
    find: Find
    where: Callable[[Any], object] = lambda subject: True
    difference: str | None = None
    rank: int = 0
    float32_constants: bool = False
    plain: bool = False
    alone: bool = False
    own_code: bool = False
    drops: bool = False

    def variants(self, subject: Any) -> Iterable[Variant]:
        return self.find(subject) if isinstance(subject, self.subject) and self.where(subject) else ()


_registered: dict[tuple[str, str], Cause] = {}


def enter(found: Cause) -> None:
    """Enter a cause; raises ValueError for a second cause of that id in a phase, an unknown phase or a missing text."""
    if not found.text:
        raise ValueError(f"{found.id}: its docstring must say the cause in one sentence")
    if found.phase not in PHASES:
        raise ValueError(f"{found.id}: phase {found.phase!r} is none of {', '.join(PHASES)}")
    if (found.phase, found.id) in _registered:
        raise ValueError(f"{found.id}: the phase {found.phase} already has a cause of this name")
    _registered[found.phase, found.id] = found


def cause(phase: str, subject: type, **facts: Any) -> Callable[[Find], Find]:
    """Decorator that enters a function as a cause; `facts` are further fields of `Cause`."""

    def entered(find: Find) -> Find:
        enter(Cause(find.__name__, phase, sentence_of(find), subject, find, **facts))
        return find

    return entered


def sentence_of(function: Callable[..., Any]) -> str:
    """First paragraph of a docstring, without its capital and full stop, for use within another sentence."""
    text = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split()).removesuffix(".")
    first = text.partition(" ")[0]
    is_name = any(letter.isupper() for letter in first[1:]) or first.rstrip("',s") in _NAMES
    return text if is_name else text[:1].lower() + text[1:]


_NAMES = {"Adam", "Adamax", "Nesterov", "Pillow", "Huber", "Python"}
"""Words that keep their capital within a sentence."""


def known_causes(*phases: str) -> Sequence[Cause]:
    """All causes of these phases (by default of all), by rank, plain ones first, then in order of entry."""
    _discover()
    found = [item for item in _registered.values() if not phases or item.phase in phases]
    return sorted(found, key=lambda item: (item.rank, not item.plain))


@functools.cache
def _discover() -> None:
    """Import every module below this package, which enters its causes."""
    package = importlib.import_module(__package__ or "twinalign.causes")
    for module in sorted(pkgutil.walk_packages(package.__path__, f"{package.__name__}."), key=lambda found: found.name):
        importlib.import_module(module.name)
