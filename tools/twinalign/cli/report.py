"""`twinalign report`."""

from __future__ import annotations

from pathlib import Path

import click

from twinalign.cli.reporting import reporting_options, write_asked


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path))
@reporting_options
def command(folder: Path, md: Path | None, junit: Path | None, lang: str) -> None:
    """Write report.html into FOLDER, the --out folder of a finished `twinalign run`, or what is asked for instead."""
    from twinalign.report import write_report

    asked = md is not None or junit is not None
    for path in write_asked(folder, md, junit, lang) if asked else [write_report(folder, lang)]:
        click.echo(path)
