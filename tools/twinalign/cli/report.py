"""`twinalign report`."""

from pathlib import Path

import click

from twinalign.cli.options import run_options
from twinalign.cli.outputs import json_text, output_option, reporting_options, write_output, write_reports
from twinalign.errors import InputError


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--against", type=click.Path(path_type=Path), metavar="FOLDER", help="An earlier run of the same case.")
@output_option("--json", "json_path", "With --against: write what changed")
@reporting_options
@run_options("report")
def command(
    folder: Path, against: Path | None, json_path: Path | None, md: Path | None, junit: Path | None, language: str
) -> None:
    """Write report.html into FOLDER, the --out folder of a finished `twinalign run`, or the requested files instead.

    With --against, what changed since that run is printed, and the report begins with it: verdicts, causes that are
    mended or new, tensors, greatest differences in float64, settings of both environments.
    """
    from twinalign.reports import load_summary, write_report
    from twinalign.reports.changes import changes, compared
    from twinalign.reports.language import language as catalogue

    if against is not None:
        runs = load_summary(against), load_summary(folder)
        write_output(json_path, lambda: json_text({"case": runs[1]["case"], "changes": compared(*runs)}))
        if str(json_path) == "-":
            return
        click.echo("\n".join(changes(*runs, catalogue(language))))
    elif json_path is not None:
        raise InputError("--json: has what changed since another run; give that run's folder with --against")
    asked = md is not None or junit is not None
    for path in write_reports(folder, md, junit, language) if asked else [write_report(folder, language, against)]:
        click.echo(path)
