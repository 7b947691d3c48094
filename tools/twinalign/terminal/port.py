"""A drafted port on the terminal: what was changed, what is left, and the verdict."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from twinalign.terminal.console import COLOURS, output


def print_port(found: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the changes with their reasons, what is left for a person, and the verdict of each stage."""
    console = console or output()
    for (text, why), count in Counter((change["text"], change["why"]) for change in found["changes"]).items():
        times = f" ({count} files)" if count > 1 else ""
        console.print(Text(f"{text}{times}: {why}", style="dim"), soft_wrap=True)
    for edit in found["edits"]:
        console.print(Text(f"{edit['file']}: {edit['before']} → {edit['after']}", style="cyan"), soft_wrap=True)
    for change in found["kept"]:
        console.print(Text(f"stays: {change['file']}: {change['text']}: {change['why']}", style="dim"), soft_wrap=True)
    for text in found["left"]:
        console.print(Text(f"left: {text}", style="yellow"), soft_wrap=True)
    stages = ", ".join(f"{name} {verdict}" for name, verdict in found["stages"].items())
    verdict = found["verdict"] or "the port does not run yet"
    line = f"\n{found['out']}: {verdict}" + (f" ({stages})" if stages else "")
    console.print(Text(line, style=f"bold {COLOURS.get(verdict, 'red')}"), soft_wrap=True)
