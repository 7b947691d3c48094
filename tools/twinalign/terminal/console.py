"""Where and how results are printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod
    from rich.table import Table

_WIDTH_ELSEWHERE = 240


def output() -> Console:
    """Standard output: as wide as the terminal; with one line per row if it is not a terminal."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=_WIDTH_ELSEWHERE)


def line_writer(console: Console | None) -> Callable[[str], None]:
    """A function that writes lines unchanged to a console, or to standard output without rich."""
    if console is None:
        import click

        return click.echo
    from rich.text import Text

    return lambda line: console.print(Text(line), soft_wrap=True)


def table(*headers: str, right: Sequence[str] = (), overflow: OverflowMethod = "ellipsis", **options: Any) -> Table:
    """A table without lines, its `right` columns aligned to the right."""
    from rich.table import Table

    found = Table(box=None, pad_edge=False, **options)
    for header in headers:
        found.add_column(header, justify="right" if header in right else "left", overflow=overflow)
    return found
