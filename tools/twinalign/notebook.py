"""Results in a notebook: what a command would print, as HTML."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_FORMAT = '<pre style="overflow-x:auto;line-height:normal;font-family:monospace">{code}</pre>'
_WIDTH = 160


def as_html(show: Callable[[Console], None]) -> str:
    """What `show` prints to the console that it is given, escaped, with its colours."""
    from rich.console import Console

    # force_jupyter=False: rich would else show what is printed by itself, beside what is returned here.
    console = Console(record=True, file=io.StringIO(), width=_WIDTH, force_jupyter=False)
    show(console)
    return console.export_html(inline_styles=True, code_format=_FORMAT)


def as_text(show: Callable[[Console], None], width: int = _WIDTH) -> str:
    """What `show` prints to the console that it is given, as plain text."""
    from rich.console import Console

    file = io.StringIO()
    show(Console(file=file, width=width, force_jupyter=False, no_color=True))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())
