"""`twinalign attach`."""

from pathlib import Path
from typing import Any

import click

from twinalign.errors import InputError

_PATH = click.Path(path_type=Path)


@click.command("attach", context_settings={"ignore_unknown_options": True})
@click.option("--out", type=_PATH, required=True, help="Folder of the recording.")
@click.option("--steps", default="0,1,2", show_default=True, help="Steps to record whole, from 0.")
@click.option("--layers", multiple=True, metavar="PATTERN", help="Layers whose outputs are recorded too.")
@click.option("--whole-layers", is_flag=True, help="Record these whole, not as samples.")
@click.option("--weights", type=_PATH, help="Start from a checkpoint, or from the other trainer's recording.")
@click.option("--feed", type=_PATH, help="Give the model the batches of the other trainer's recording.")
@click.option("--rename", type=_PATH, metavar="FILE", help="JSON: {reference name: paddle name}.")
@click.option("--repeat", is_flag=True, help="Change weights by one unit in the last place, to measure rounding.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def command(steps: str, command: tuple[str, ...], rename: Path | None, debug: bool, **options: Any) -> int:
    """Record a trainer that must not be touched: `twinalign attach --out DIR -- python train.py`.

    The model is the one whose parameters the script's first optimizer is given, in torch or paddle. In a script of
    your own, two lines do the same: import twinalign; twinalign.attach(model, optimizer, out=DIR). Compare two
    recordings with `twinalign compare`.

    The exit code is the script's.
    """
    from twinalign.attached.untouched_script import run_attached
    from twinalign.conversion.options import read_rules

    try:
        numbers = [int(step) for step in steps.split(",") if step.strip()]
    except ValueError:
        raise InputError(f"--steps {steps}: whole numbers with commas between them, as 0,1,2") from None
    chosen = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    chosen |= {"layers": list(chosen["layers"]), "steps": numbers, "rename": read_rules(rename) if rename else None}
    return run_attached(command, chosen)
