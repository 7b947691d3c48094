"""A comparison: a table on a terminal, plain lines elsewhere, then the notes and the classic verdict."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from twinalign.files.text import printable
from twinalign.reports.attached_facts import sentences
from twinalign.reports.language import language
from twinalign.reports.summary import worst_first
from twinalign.reports.tables import COMPARISON_HEADERS, comparison_cells, summary_line
from twinalign.terminal.console import line_writer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDE = 120
"""Columns from which the reasons have a place in the table; in narrower terminals they are below it."""
_STYLES = {"diverged": "red", "inconclusive": "yellow", "rounding": "cyan"}


def print_comparison(found: Mapping[str, Any], console: Console | None = None, *, limit: int | None = 40) -> None:
    """Print the tensors, at most `limit` of them, the worst first; then the notes and the classic verdict."""
    if console is None and sys.stdout.isatty():
        from rich.console import Console

        console = Console()
    write = line_writer(console)
    if console is not None:
        narrow = console.width < _WIDE
        console.print(_table(found, limit, narrow))
        for tensor in worst_first(found["tensors"])[:limit] if narrow else ():
            if tensor["verdict"] in ("diverged", "inconclusive"):
                write(f"{printable(tensor['name'])}: {tensor['reason']}")
    else:
        for line in _tensor_lines(found, limit):
            write(line)
    tensors, classic = found["tensors"], found["classic"]
    if limit is not None and len(tensors) > limit:
        write(f"({len(tensors) - limit} more tensors; --limit 0 shows all)")
    for sentence in sentences(found["attached"], language("en")) if "attached" in found else ():
        write(printable(sentence))
    for note in found["notes"]:
        write(f"note: {note}")
    write("reprod_log would say:")
    if classic["error"]:
        write(f"  {printable(classic['error'])}")
    write(f"  {classic['lines'][-1]}")
    for quirk in classic["quirks"][:limit]:
        write(f"  ({printable(quirk)})")
    if limit is not None and len(classic["quirks"]) > limit:
        write(f"  ({len(classic['quirks']) - limit} more of these)")
    write(summary_line(found))


def _table(found: Mapping[str, Any], limit: int | None, narrow: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=summary_line(found), title_justify="left", expand=False)
    headers = COMPARISON_HEADERS[: -1 if narrow else None]
    for header in headers:
        table.add_column(header, overflow="fold", justify="left" if header in ("tensor", "verdict", "why") else "right")
    for tensor in worst_first(found["tensors"])[:limit]:
        cells = (Text(cell) for cell in comparison_cells(tensor)[: len(headers)])
        table.add_row(*cells, style=_STYLES.get(tensor["verdict"], ""))
    return table


def _tensor_lines(found: Mapping[str, Any], limit: int | None) -> Iterator[str]:
    for tensor in worst_first(found["tensors"])[:limit]:
        most, mean = tensor["max_abs"], tensor["mean_abs"]
        numbers = "" if most is None else f" (max {float(most):.3g}, mean {float(mean):.3g})"
        yield f"{tensor['verdict']:<12} {printable(tensor['name'])}{numbers}: {tensor['reason']}"
