"""`twinalign run`."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from twinalign.cli.options import DEFAULT_CASE, parse_settings, recording_options, split_stages, training_options
from twinalign.cli.reporting import reporting_options, to_stdout, write_asked


@click.command("run")
@click.argument("case", default=DEFAULT_CASE)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("result"), show_default=True, help="Output folder."
)
@click.option("--ref-python", metavar="PYTHON", help="Interpreter that has torch; twinalign need not be there.")
@click.option("--paddle-python", metavar="PYTHON", help="Interpreter that has paddle; twinalign need not be there.")
@click.option(
    "--locate/--no-locate",
    default=True,
    show_default=True,
    help="Where stages diverge, find the wrong layers and parts, and why (see twinalign locate).",
)
@click.option("--sequential", is_flag=True, help="Record one side after the other, for models that fill the memory.")
@training_options
@reporting_options
@recording_options
def command(
    case: str,
    out: Path,
    md: Path | None,
    junit: Path | None,
    lang: str,
    ref_python: str | None,
    paddle_python: str | None,
    locate: bool,
    sequential: bool,
    seeds: int,
    margin: float,
    tensorboard: bool,
    switch_at: int,
    switch_from: str,
    swaps: tuple[str, ...],
    stages: str | None,
    device: str,
    precision: str,
    ranks: int,
    accuracy_compatible: bool,
    data: Path | None,
    settings: tuple[str, ...],
    fresh: bool,
    debug: bool,
) -> int:
    """Record both sides of CASE, compare them stage by stage, write logs and report.

    CASE is a registered name, path/to/case.py or package.module:ClassName. What has not changed since the last run is
    reused.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.jobs import RunSettings
    from twinalign.judging import run
    from twinalign.tables import print_run

    quiet = to_stdout(md, junit)  # where a program reads stdout, nothing else goes there
    asked = RunSettings(
        case=case,
        out=out,
        stages=split_stages(stages),
        device=device,
        precision=precision,
        ranks=ranks,
        accuracy_compatible=accuracy_compatible,
        pythons={"ref": ref_python, "paddle": paddle_python},
        options=parse_settings(settings, data),
        fresh=fresh,
        sequential=sequential,
        locate=locate,
        language=lang,
        debug=debug,
        seeds=seeds,
        margin=margin,
        tensorboard=tensorboard,
        switch_at=switch_at,
        switch_from=switch_from,
        swaps=swaps,
    )
    source = click.get_current_context().get_parameter_source("case")
    if source is ParameterSource.DEFAULT and Path("case.py").is_file():
        click.echo(f"running {case}; for the case.py that lies here: twinalign run case.py", err=True)
    with SideProgress() as progress:
        result = run(asked, progress)
    write_asked(out, md, junit, lang)
    if not quiet:
        print_run(result, out)
    return int(result.exit_code)
