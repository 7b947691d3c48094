"""`twinalign locate`."""

from __future__ import annotations

from pathlib import Path

import click

from twinalign.cli.options import DEFAULT_CASE, parse_settings, split_stages


@click.command("locate")
@click.argument("case", default=DEFAULT_CASE)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write what was found to this file.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("result"),
    show_default=True,
    help="Folder for weights and for the pictures of wrong data.",
)
@click.option("--stages", metavar="A,B,…", help="Search only what shows in these stages; all by default.")
@click.option("--explain/--no-explain", default=True, show_default=True, help="Look for the cause of each fault.")
@click.option("--ref-python", metavar="PYTHON", help="Interpreter that has torch; twinalign need not be there.")
@click.option("--paddle-python", metavar="PYTHON", help="Interpreter that has paddle; twinalign need not be there.")
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True)
@click.option("--ranks", type=int, default=1, show_default=True, metavar="N", help="Search N processes a side as well.")
@click.option("--data", type=click.Path(path_type=Path), help="Data folder of the case (its option `data`).")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set an option of the case.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    case: str,
    json_path: Path | None,
    out: Path,
    stages: str | None,
    explain: bool,
    ref_python: str | None,
    paddle_python: str | None,
    device: str,
    ranks: int,
    data: Path | None,
    settings: tuple[str, ...],
    debug: bool,
) -> int:
    """Name every wrong layer and part of a port, and the proven cause of each.

    Each layer of the port is judged alone, on what the reference's layer was given: a wrong layer is told from one that
    inherits an error. A cause is stated only where, applied to the reference, it reproduces the port's wrong values.
    Exit code 0: nothing is wrong; 1: faults were found.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.locate import locate
    from twinalign.locate.tables import print_located
    from twinalign.recording import write_json
    from twinalign.runner import RunSettings

    asked = RunSettings(
        case=case,
        out=out,
        stages=split_stages(stages),
        device=device,
        ranks=ranks,
        pythons={"ref": ref_python, "paddle": paddle_python},
        options=parse_settings(settings, data),
        debug=debug,
    )
    with SideProgress() as progress:
        result = locate(asked, progress, explain)
    print_located(result)
    if json_path is not None:
        write_json(json_path, result.to_json())
    return int(result.exit_code)
