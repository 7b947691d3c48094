"""`twinalign record`."""

from __future__ import annotations

from pathlib import Path

import click

from twinalign.cli.options import parse_settings, recording_options, split_stages


@click.command("record")
@click.argument("case")
@click.option("--side", type=click.Choice(["ref", "paddle"]), required=True, help="Which side to record.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Output folder.")
@click.option("--python", metavar="PYTHON", help="Interpreter that has the side's framework.")
@recording_options
def command(
    case: str,
    side: str,
    out: Path,
    python: str | None,
    stages: str | None,
    device: str,
    precision: str,
    ranks: int,
    accuracy_compatible: bool,
    data: Path | None,
    settings: tuple[str, ...],
    fresh: bool,
    debug: bool,
) -> None:
    """Record one side of CASE into OUT; record the other side elsewhere and use `twinalign compare`.

    Record the reference first: it makes the initial weights. The paddle side takes them, with the layout of the
    reference, from OUT/weights, so copy that folder along.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.runner import Recorder, RunSettings

    asked = RunSettings(
        case=case,
        out=out,
        stages=split_stages(stages),
        device=device,
        precision=precision,
        ranks=ranks,
        accuracy_compatible=accuracy_compatible,
        pythons={side: python},
        options=parse_settings(settings, data),
        fresh=fresh,
        debug=debug,
    )
    with SideProgress() as progress:
        recorder = Recorder(asked, progress)
        for stage in recorder.record([side]):
            for dtype in recorder.dtypes_of(stage):
                click.echo(recorder.recording_path(side, stage, dtype))
