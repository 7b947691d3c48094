"""`twinalign pack`."""

from pathlib import Path

import click


@click.command("pack")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("bundle", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@click.option("--partial", is_flag=True, help="Allow a run without all six stages; the bundle says which are missing.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(folder: Path, bundle: Path, partial: bool, debug: bool) -> None:
    """Pack DIR, the --out folder of a finished `twinalign run`, into FILE (.zip) for review.

    The bundle holds recordings, logs, summary, environment, the case's own source, the conversion ledger, and the
    hashes of weights, inputs, code and data. Stale, aliased or incomplete files are refused by name. The bundle is
    checked as `twinalign verify` will check it before it is renamed to FILE; a diverged run can be packed.
    """
    from twinalign.bundle.packing import pack_run
    from twinalign.cli.progress import SideProgress
    from twinalign.terminal.verification import size_of

    with SideProgress() as progress:
        result = pack_run(folder, bundle, partial=partial, progress=lambda text: progress("pack", text))
    click.echo(f"{bundle}: {size_of(result.size)}, manifest sha256 {result.manifest_sha256}")
    click.echo(f"{result.case}: {result.recomputed} in {', '.join(result.stages)}")
    if result.missing_stages:
        click.echo(f"packed without {', '.join(result.missing_stages)}, and says so")
    click.echo(f"a reviewer checks it with: twinalign verify {bundle}")
