"""What a comparison says of two attached trainers, in sentences."""

from collections.abc import Iterator, Mapping
from typing import Any


def sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """One line per step with the verdict of each quantity in the order of execution, then the first to differ and why.

    `found`: the entry `attached` of a comparison's JSON.
    """
    for step in found["steps"]:
        rows = []
        for row in step["quantities"]:
            inherits = " (after what differs before)" if row["inherits"] else ""
            rows.append(f"{row['quantity'].replace('_', ' ')} {row['verdict']}{inherits}")
        yield f"step {step['step']}: {', '.join(rows)}"
    if found["first"]:
        first = found["first"]
        quantity = first["quantity"].replace("_", " ")
        yield f"first to differ: step {first['step']}, {quantity}: {first['name']}: {first['reason']}"
    for cause in found["causes"]:
        rank = f"rank {cause['rank']}, " if "rank" in cause else ""
        yield f"cause {cause['id']} ({rank}step {cause['step']}): {cause['text']}"
    if found["first"] and not found["causes"]:
        yield "no cause is proven by what was recorded"
