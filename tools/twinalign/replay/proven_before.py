"""Causes that were proven of one component, which are tried first in the next: a training has its optimizer's fault."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from twinalign.replay.aligned_code import Code
from twinalign.replay.port_code import PORT_CODE
from twinalign.replay.port_lines import LinesVariant, lines_of


class _Proven(NamedTuple):
    identifier: str
    detail: str
    places: frozenset[tuple[Any, ...]]
    """File, first and last line of what the port has."""


_PROVEN: list[_Proven] = []
"""In this process, the last one first."""


def note_proven(found: Any, variant: Any) -> None:
    """Note an explanation, if there is one, and its variant that was applied."""
    if found is not None:
        places = frozenset(map(tuple, found.evidence.get("lines_of_port", ())))
        _PROVEN.insert(0, _Proven(found.id, getattr(variant, "detail", ""), places))


def forget_proven(worker: Any) -> dict[str, Any]:
    """Another search begins."""
    _PROVEN.clear()
    return {}


def was_proven(identifier: str, variant: Any = None) -> bool:
    """Whether a cause was, or this variant of it."""
    details = [_words(one.detail) for one in _PROVEN if one.identifier == identifier]
    return bool(details) and (variant is None or _words(variant.detail) in details)


def _words(detail: str) -> list[str]:
    return sorted(detail.replace(",", " ").split())  # names may come in another order


def lines_proven(begins: Callable[[], Any], theirs: Sequence[Code] | None) -> Iterator[LinesVariant]:
    """The lines of the port that were proven to be wrong, in a component that runs with `begins`; as for `lines_of`."""
    places = frozenset[Any]().union(*(one.places for one in _PROVEN))
    for one in lines_of(PORT_CODE, begins, theirs=theirs) if places else ():
        if places & {*map(tuple, one.lines_of_port)}:
            yield one
