"""The ledger of a conversion on the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from twinalign.terminal.console import output, table


def print_conversion(found: Mapping[str, Any], console: Console | None = None, *, quiet: bool = False) -> None:
    """Print a row for every target key and every dropped one, then the totals, what was proven and what was written."""
    console, ledger = console or output(), found["ledger"]
    if not quiet:
        rows = table("source", "target", "shape", "what", "why", overflow="fold", header_style="bold")
        for entry in ledger["entries"]:
            rows.add_row(*_cells(entry))
        console.print(rows)
    totals = ", ".join(f"{count} {action}" for action, count in ledger["totals"].items())
    read = {key for entry in ledger["entries"] for key in entry["source"]}
    # A key that may lack is accounted for by its name and not written.
    written = sum(entry["target"] is not None and "dropped" not in entry["actions"] for entry in ledger["entries"])
    console.print(f"{len(read)} keys in, {written} out: {totals}")
    verified = ledger.get("verified")
    if verified:
        console.print(f"verified in float64: outputs differ by {verified['relative_difference']:.1e} relative")
    for path in found["written"]:
        console.print(f"wrote {path}", highlight=False)


def _cells(entry: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    shape = entry["target_shape"] if entry["target_shape"] is not None else (entry["source_shapes"] or (None,))[0]
    shown = "" if shape is None else "×".join(map(str, shape)) or "scalar"
    return (
        ", ".join(entry["source"]) or "-",
        entry["target"] or "-",
        shown,
        ", ".join(entry["actions"]),
        entry["reason"],
    )
