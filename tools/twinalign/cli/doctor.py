"""`twinalign doctor`."""

from __future__ import annotations

import json
from typing import Any

import click

_PACKAGES = ("torch", "torchvision", "paddlepaddle", "paddlepaddle-gpu", "numpy", "pillow", "reprod-log", "safetensors")


@click.command("doctor")
@click.option("--ref-python", metavar="PYTHON", help="Interpreter that has torch.")
@click.option("--paddle-python", metavar="PYTHON", help="Interpreter that has paddle.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(ref_python: str | None, paddle_python: str | None, as_json: bool) -> int:
    """Say what is installed and which device paths work here.

    Each framework is asked in a process of its own. Exits with 0 when both can record on the CPU, with 2 otherwise.
    """
    from twinalign.diagnosis import diagnose, ready
    from twinalign.errors import ExitCode

    sides = diagnose({"ref": ref_python, "paddle": paddle_python})
    if as_json:
        click.echo(json.dumps(sides, indent=1))
    else:
        _show(sides)
    return int(ExitCode.ALIGNED if ready(sides) else ExitCode.BAD_INPUT)


def _show(sides: dict[str, Any]) -> None:
    from rich.table import Table

    from twinalign import terminal

    console = terminal.output()
    for side, found in sides.items():
        interpreter = found["interpreter"]
        console.print(
            f"[bold]{side}[/]  {found['framework']} in {interpreter['executable']} (Python {interpreter['python']})"
        )
        console.print("  " + ", ".join(f"{name} {interpreter[name]}" for name in _PACKAGES if name in interpreter))
        if not found["installed"]:
            console.print(f"  [red]cannot be imported:[/] {found['reason']}", highlight=False)
            continue
        table = Table(box=None, pad_edge=False, show_header=False)
        for path, state in found["paths"].items():
            table.add_row("", path, "[green]works[/]" if state == "works" else f"[yellow]{state}[/]")
        console.print(table)
        console.print("  distributed: " + (", ".join(found["communication"]) or "none"))
        flags = ", ".join(f"{name}={value}" for name, value in found["flags"].items() if value is not None)
        console.print(f"  flags: {flags}\n", highlight=False)
