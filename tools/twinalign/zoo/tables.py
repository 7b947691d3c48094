"""The zoo on the terminal and as Markdown: a row an architecture, then what differs where two really do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from twinalign import terminal

if TYPE_CHECKING:
    from rich.console import Console

    from twinalign.zoo.running import Outcome, ZooResult

_HEADERS = ("architecture", "keys matched by", "float64 differs by", "noise ×", "verdict")
_COLOURS = {"aligned": "green", "diverged": "red", "inconclusive": "yellow", "crashed": "bold red"}


def cells(outcome: Outcome) -> list[str]:
    """One row."""
    matched = ", ".join(f"{how} ({count})" for how, count in outcome.matched.items())
    return [
        outcome.name,
        matched or "–",
        "–" if outcome.float64 is None else f"{outcome.float64:.1e}",
        "–" if outcome.noise is None else f"{outcome.noise:.2g}",
        outcome.verdict,
    ]


def counted(result: ZooResult) -> str:
    """How many architectures have each verdict, in one line."""
    return f"{len(result.outcomes)} architectures: " + ", ".join(f"{n} {v}" for v, n in result.counts.items())


def print_zoo(result: ZooResult, console: Console | None = None) -> None:
    """Print the table, what differs where two differ, and the counts."""
    console = console or terminal.output()
    table = Table(box=None, pad_edge=False)
    for header in _HEADERS:
        table.add_column(header, justify="right" if header in _HEADERS[2:4] else "left")
    for outcome in result.outcomes:
        *row, verdict = cells(outcome)
        table.add_row(*row, Text(verdict, style=_COLOURS[verdict]))
    console.print(table)
    for outcome in result.outcomes:
        if outcome.explanation:
            console.print(Text.assemble("\n", (outcome.name, "bold"), f": {outcome.explanation}"), soft_wrap=True)
    console.print(f"\n{counted(result)}", highlight=False)


def markdown(result: ZooResult) -> str:
    """The same as Markdown."""
    lines = ["| " + " | ".join(_HEADERS) + " |", "|" + " --- |" * len(_HEADERS)]
    lines += ["| " + " | ".join(cells(outcome)) + " |" for outcome in result.outcomes]
    for outcome in result.outcomes:
        if outcome.explanation:
            lines += ["", f"**{outcome.name}**: {outcome.explanation}"]
    return "\n".join([*lines, "", counted(result)]) + "\n"
