"""Where commands print their tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_ELSEWHERE = 240


def output() -> Console:
    """Standard output: as wide as the terminal; where a file or another program reads it, a row is one line."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=_WIDTH_ELSEWHERE)
