"""`twinalign record`."""

from typing import Any

import click

from twinalign.cli.options import run_options


@click.command("record")
@click.argument("case")
@click.option("--side", type=click.Choice(["ref", "paddle"]), required=True, help="Which side to record.")
@click.option("--python", metavar="PYTHON", help="Interpreter that has the side's framework.")
@run_options("record")
def command(case: str, side: str, python: str | None, **asked: Any) -> None:
    """Record one side of CASE into OUT; record the other side elsewhere and use `twinalign compare`.

    Record the reference first: it makes the initial weights. The paddle side reads them, with the layout of the
    reference, from OUT/weights, so copy that folder too.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.recorder.recorder import Recorder
    from twinalign.runs.options import run_settings

    settings = run_settings(case, **asked, **{f"{side}_python": python})
    with SideProgress() as progress:
        recorder = Recorder(settings, progress)
        for stage in recorder.record([side]):
            for dtype in recorder.dtypes_of(stage):
                click.echo(recorder.recording_path(side, stage, dtype))
