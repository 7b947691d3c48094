"""`twinalign run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from twinalign.cli.options import case_argument, run_options
from twinalign.cli.outputs import one_to_stdout, reporting_options, write_reports
from twinalign.files.text import printable

if TYPE_CHECKING:
    from twinalign.recorder.run_settings import RunSettings


@click.command("run")
@case_argument
@click.option("--watch", is_flag=True, help="Stay, and run again each time a source is saved, until Ctrl-C.")
@reporting_options
@run_options("run")
def command(case: str, md: Path | None, junit: Path | None, watch: bool, **asked: Any) -> int:
    """Record both sides of CASE, compare them stage by stage, write logs and report.

    CASE is a registered name, path/to/case.py or package.module:ClassName. What has not changed since the last run is
    reused.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.runs.options import run_settings
    from twinalign.runs.run_stages import run
    from twinalign.terminal import show

    quiet = one_to_stdout(md=md, junit=junit)  # a program reads stdout: print nothing else there
    settings = run_settings(case, **asked)
    if watch:
        _watch(settings, md, junit, quiet)
    with SideProgress() as progress:
        result = run(settings, progress)
    write_reports(settings.out, md, junit, settings.language)
    if not quiet:
        show(result, out=settings.out)
    return int(result.exit_code)


def _watch(settings: RunSettings, md: Path | None, junit: Path | None, quiet: bool) -> NoReturn:
    from twinalign.cli.progress import SideProgress
    from twinalign.reports.changes import changes
    from twinalign.runs.session import Session, watched_runs
    from twinalign.terminal import show

    last = None
    with Session() as session:
        for result in watched_runs(session, settings, SideProgress):
            if isinstance(result, Exception):
                for note in getattr(result, "__notes__", ()):
                    click.echo(note, err=True)
                click.echo(f"twinalign: {printable(str(result))}", err=True)
            else:
                write_reports(settings.out, md, junit, settings.language)
                found = result.to_json()
                if last is not None and not quiet:
                    click.echo("\n".join(["", *changes(last, found), ""]))
                if not quiet:
                    show(result, out=settings.out)
                last = found
            click.echo("waiting for a source to be saved; Ctrl-C ends", err=True)
    raise AssertionError("watching has no end")
