"""What is installed for each side, on the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from twinalign.terminal.console import output, table

_PACKAGES = ("torch", "torchvision", "paddlepaddle", "paddlepaddle-gpu", "numpy", "pillow", "reprod-log", "safetensors")


def print_doctor(found: Mapping[str, Any], console: Console | None = None) -> None:
    """Print each side's interpreter, packages, device paths and flags."""
    console = console or output()
    for side, state in found.items():
        interpreter = state["interpreter"]
        console.print(
            f"[bold]{side}[/]  {state['framework']} in {interpreter['executable']} (Python {interpreter['python']})"
        )
        console.print("  " + ", ".join(f"{name} {interpreter[name]}" for name in _PACKAGES if name in interpreter))
        if not state["installed"]:
            console.print(f"  [red]cannot be imported:[/] {state['reason']}", highlight=False)
            continue
        paths = table(show_header=False)
        for path, works in state["paths"].items():
            paths.add_row("", path, "[green]works[/]" if works == "works" else f"[yellow]{works}[/]")
        console.print(paths)
        console.print("  distributed: " + (", ".join(state["communication"]) or "none"))
        flags = ", ".join(f"{name}={value}" for name, value in state["flags"].items() if value is not None)
        console.print(f"  flags: {flags}\n", highlight=False)
