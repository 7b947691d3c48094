"""Faults whose causes are conventions of paddle that the case accepts: they are shown, and decide nothing."""

from collections.abc import Iterable, Iterator, Sequence

from twinalign.causes.layers.explaining import PHASES_TRIED
from twinalign.causes.registry import known_causes
from twinalign.search.faults import Fault
from twinalign.verdict.excuses import CONVENTIONS


def accept(fault: Fault, accepted: Sequence[str]) -> None:
    """Mark a fault if the case accepts all or some of its causes as conventions of the framework, or could."""
    if fault.explanation is None:
        return
    identifiers = [text.partition("=")[0] for text in accepted]
    names = {
        item.id: {item.id, item.difference} for item in known_causes(*PHASES_TRIED.get(fault.phase, (fault.phase,)))
    }
    causes = fault.explanation.id.split("+")
    found = {cause: next((i for i in identifiers if i in names.get(cause, {cause})), None) for cause in causes}
    conventions = [cause for cause, identifier in found.items() if identifier is not None]
    if len(conventions) == len(causes):
        fault.evidence["accepted"] = ", ".join(dict.fromkeys(str(found[cause]) for cause in causes))
    elif conventions:
        fault.evidence["accepted_causes"] = conventions
    elif all(of_framework := [CONVENTIONS.keys() & names.get(cause, {cause}) for cause in causes]):
        fault.evidence["convention"] = min(of_framework[0])


def is_accepted(fault: Fault) -> bool:
    """Whether the case accepts all causes of a fault."""
    return "accepted" in fault.evidence


def are_accepted(faults: Iterable[Fault], accepted: Sequence[str]) -> Iterator[bool]:
    """Mark faults, and say of each whether the case accepts it."""
    for fault in faults:
        accept(fault, accepted)
        yield is_accepted(fault)
