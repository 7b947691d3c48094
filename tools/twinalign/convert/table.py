"""The ledger on screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinalign import terminal
from twinalign.convert.ledger import LedgerEntry
from twinalign.convert.options import Report

if TYPE_CHECKING:
    from rich.console import Console


def print_report(report: Report, *, quiet: bool = False, console: Console | None = None) -> None:
    """Print a row for every target key and every dropped one, then the totals, what was proven and what was written."""
    from rich.table import Table

    console = console or terminal.output()
    if not quiet:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("source", "target", "shape", "what", "why"):
            table.add_column(name, overflow="fold")
        for entry in report.ledger.entries:
            table.add_row(*_row(entry))
        console.print(table)
    totals = ", ".join(f"{count} {action}" for action, count in report.ledger.totals().items())
    # A key that may lack is accounted for by its name and not written.
    written = sum(entry.target is not None and "dropped" not in entry.actions for entry in report.ledger.entries)
    console.print(f"{len(report.ledger.source_keys)} keys in, {written} out: {totals}")
    verified = report.ledger.facts.get("verified")
    if verified:
        console.print(f"verified in float64: outputs differ by {verified['relative_difference']:.1e} relative")
    for path in report.written:
        console.print(f"wrote {path}", highlight=False)


def _row(entry: LedgerEntry) -> tuple[str, str, str, str, str]:
    shape = entry.target_shape if entry.target_shape is not None else (entry.source_shapes or (None,))[0]
    shown = "" if shape is None else "×".join(map(str, shape)) or "scalar"
    return ", ".join(entry.source) or "-", entry.target or "-", shown, ", ".join(entry.actions), entry.reason
