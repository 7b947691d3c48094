"""Where and how results are printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod
    from rich.style import StyleType
    from rich.table import Table
    from rich.text import Text

_WIDTH_ELSEWHERE = 240
COLOURS = {"aligned": "green", "diverged": "red", "inconclusive": "yellow"}
"""Verdict -> style."""


def output() -> Console:
    """Standard output: as wide as the terminal; with one line per row if it is not a terminal."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=_WIDTH_ELSEWHERE)


def print_text(console: Console, text: str | Text, style: StyleType = "") -> None:
    """Print text, on a terminal wrapped at words: what follows of a line is two columns further in than its beginning.

    Elsewhere each line stays whole, and a word that is longer than the terminal is never broken: both can be copied.
    """
    from rich.text import Text

    whole = text.copy() if isinstance(text, Text) else Text(text)
    whole.stylize_before(style)
    for line in whole.split("\n", allow_blank=True):
        if console.is_terminal and line.cell_len > console.width:
            line = _wrapped(line, console.width)
        console.print(line, soft_wrap=True)


def _wrapped(line: Text, width: int) -> Text:
    from rich.text import Text

    indent = len(line.plain) - len(line.plain.lstrip())
    breaks: list[int] = []
    start = 0
    for word in re.finditer(r"\S+", line.plain):
        if word.end() - start + (indent + 2 if breaks else 0) > width and word.start() > max(start, indent):
            breaks.append(start := word.start())
    for part in (parts := line.divide(breaks)):
        part.rstrip()
    return Text("\n" + " " * (indent + 2)).join(parts)


def line_writer(console: Console | None) -> Callable[[str], None]:
    """A function that writes lines unchanged to a console, or to standard output without rich."""
    if console is None:
        import click

        return click.echo
    return lambda line: print_text(console, line)


def table(*headers: str, right: Sequence[str] = (), overflow: OverflowMethod = "ellipsis", **options: Any) -> Table:
    """A table without lines, its `right` columns aligned to the right."""
    from rich.table import Table

    found = Table(box=None, pad_edge=False, **options)
    for header in headers:
        found.add_column(header, justify="right" if header in right else "left", overflow=overflow)
    return found
