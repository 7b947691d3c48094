"""The initial weights of a run in words: one line, and a row for tensors that differ in the same way."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from twinalign.reports.language import Language

_TABLE = "initial_table_differs"
_SHOWN = 4


@dataclasses.dataclass
class InitialGroup:
    """Tensors of one class of layer that start from the same wrong initialiser."""

    names: list[str]
    layer: str
    text: str
    """What differs in the first of them."""
    reference: str
    port: str
    cause: str | None
    remedy: str | None


def initial_groups(summary: Mapping[str, Any]) -> list[InitialGroup]:
    """The differences of `summary.json`'s `initial`; the causes that explain most tensors come first."""
    found: dict[tuple[Any, ...], InitialGroup] = {}
    for one in (summary.get("initial") or {}).get("differences", ()):
        about = {name: one[name] for name in ("layer", "reference", "port", "cause", "remedy")}
        group = found.setdefault(tuple(about.values()), InitialGroup([], text=one["text"], **about))
        group.names.append(one["name"])
    return sorted(found.values(), key=lambda group: (group.cause is None, -len(group.names)))


def initial_mark(summary: Mapping[str, Any]) -> str:
    """The verdict as the page marks it: a difference that does not count for the run's verdict is `uncounted`."""
    initial = summary.get("initial") or {"verdict": "", "counts": True}
    return "uncounted" if initial["verdict"] == "diverged" and not initial["counts"] else str(initial["verdict"])


def initial_sentence(summary: Mapping[str, Any], say: Language) -> str:
    """How both freshly built models start, in one line; empty for a run that did not look."""
    initial = summary.get("initial")
    if not initial:
        return ""
    count, tensors = len(initial["differences"]), initial["tensors"]
    if count:
        said = say("initial.differ", count=count, tensors=tensors, first=initial["differences"][0]["name"])
    else:
        said = say(f"initial.{initial['verdict']}", count=tensors, seeds=initial["seeds"])
    notes = [say("initial.left_out")] if initial_mark(summary) == "uncounted" else []
    tables = [one["name"] for one in initial["differences"] if one["cause"] == _TABLE]
    if tables and notes:
        more = [say("initial.more", count=len(tables) - _SHOWN)] if len(tables) > _SHOWN else []
        notes.append(say("initial.tables", count=len(tables), names=", ".join([*tables[:_SHOWN], *more])))
    return " ".join([said, *notes])
