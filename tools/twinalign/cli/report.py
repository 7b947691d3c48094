"""`twinalign report`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--md", "as_markdown", is_flag=True, help="Print a table for a pull request instead.")
def command(folder: Path, as_markdown: bool) -> None:
    """Write report.html into FOLDER, the --out folder of a finished `twinalign run`."""
    from twinalign.report import load_summary, markdown, write_report

    if as_markdown:
        click.echo(markdown(load_summary(folder)), nl=False)
    else:
        click.echo(write_report(folder))
