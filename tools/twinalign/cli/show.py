"""`twinalign show`."""

import webbrowser
from pathlib import Path

import click


@click.command("show")
@click.argument("folder", default="result", type=click.Path(path_type=Path))
def command(folder: Path) -> None:
    """Open the report of a finished run in the browser.

    FOLDER is the --out folder of `twinalign run`. The path of the report is printed, for where there is no browser; a
    report that is missing is written first.
    """
    from twinalign.reports import load_summary, write_report

    path = folder / "report.html"
    load_summary(folder)
    if not path.is_file():
        write_report(folder)
    click.echo(path)
    if not webbrowser.open(path.resolve().as_uri()):
        click.echo(f"no browser can be opened here; open {path} in one", err=True)
