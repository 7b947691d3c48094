"""The zoo on the terminal: one row per architecture, then the real differences."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from twinalign.reports.tables import ZOO_HEADERS, zoo_cells, zoo_counts
from twinalign.terminal.console import COLOURS, output, print_text, table


def print_zoo(found: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the table, the differences, and the counts."""
    console = console or output()
    rows = table(*ZOO_HEADERS, right=ZOO_HEADERS[2:4])
    for outcome in found["architectures"]:
        *row, verdict = zoo_cells(outcome)
        rows.add_row(*row, Text(verdict, style=COLOURS.get(verdict, "bold red")))
    console.print(rows)
    for outcome in found["architectures"]:
        if outcome["explanation"]:
            print_text(console, Text.assemble("\n", (outcome["name"], "bold"), f": {outcome['explanation']}"))
    console.print(f"\n{zoo_counts(found)}", highlight=False)
