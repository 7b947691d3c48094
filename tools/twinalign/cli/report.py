"""`twinalign report`."""

from pathlib import Path

import click

from twinalign.cli.options import run_options
from twinalign.cli.outputs import reporting_options, write_reports


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path))
@reporting_options
@run_options("report")
def command(folder: Path, md: Path | None, junit: Path | None, language: str) -> None:
    """Write report.html into FOLDER, the --out folder of a finished `twinalign run`, or the requested files instead."""
    from twinalign.reports import write_report

    asked = md is not None or junit is not None
    for path in write_reports(folder, md, junit, language) if asked else [write_report(folder, language)]:
        click.echo(path)
