"""`twinalign run`."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from twinalign.cli.options import DEFAULT_CASE, run_options
from twinalign.cli.outputs import one_to_stdout, reporting_options, write_reports


@click.command("run")
@click.argument("case", default=DEFAULT_CASE)
@reporting_options
@run_options("run")
def command(case: str, md: Path | None, junit: Path | None, **asked: Any) -> int:
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
    source = click.get_current_context().get_parameter_source("case")
    if source is ParameterSource.DEFAULT and Path("case.py").is_file():
        click.echo(f"running {case}; to run the case.py in this folder: twinalign run case.py", err=True)
    with SideProgress() as progress:
        result = run(settings, progress)
    write_reports(settings.out, md, junit, settings.language)
    if not quiet:
        show(result, out=settings.out)
    return int(result.exit_code)
