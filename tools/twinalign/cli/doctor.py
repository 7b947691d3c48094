"""`twinalign doctor`."""

import json

import click

from twinalign.cli.options import run_options


@click.command("doctor")
@run_options("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(ref_python: str | None, paddle_python: str | None, as_json: bool) -> int:
    """Say what is installed and which device paths work here.

    Each framework is tested in its own process. Exit code 0: both can record on the CPU; 2: one cannot.
    """
    from twinalign.errors import ExitCode
    from twinalign.recorder.diagnosis import diagnose, ready
    from twinalign.terminal import show_json

    sides = diagnose({"ref": ref_python, "paddle": paddle_python})
    if as_json:
        click.echo(json.dumps(sides, indent=1))
    else:
        show_json("doctor", sides)
    return int(ExitCode.ALIGNED if ready(sides) else ExitCode.BAD_INPUT)
