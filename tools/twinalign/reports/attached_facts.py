"""What a comparison says of two attached trainers, in sentences."""

from collections.abc import Iterator, Mapping
from typing import Any

from twinalign.reports.language import Language


def sentences(found: Mapping[str, Any], say: Language) -> Iterator[str]:
    """One line per step with the verdict of each quantity in the order of execution, then the first to differ and why.

    `found`: the entry `attached` of a comparison's JSON.
    """
    for step in found["steps"]:
        rows = []
        for row in step["quantities"]:
            inherits = say("attached.inherits") if row["inherits"] else ""
            rows.append(f"{_quantity(row, say)} {say.known('verdict', row['verdict'])}{inherits}")
        yield say("attached.step", step=step["step"], quantities=", ".join(rows))
    if found["first"]:
        first = found["first"]
        reason = say.translated(first["reason"])
        quantity = _quantity(first, say)
        yield say("attached.first", step=first["step"], quantity=quantity, name=first["name"], reason=reason)
    for cause in found["causes"]:
        rank = say("attached.rank", rank=cause["rank"]) if "rank" in cause else ""
        yield say("attached.cause", id=cause["id"], rank=rank, step=cause["step"], text=say.translated(cause["text"]))
    if found["first"] and not found["causes"]:
        yield say("attached.no_cause")


def _quantity(row: Mapping[str, Any], say: Language) -> str:
    return say.known("quantity", row["quantity"])
