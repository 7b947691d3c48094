"""`twinalign locate`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import DEFAULT_CASE, run_options


@click.command("locate")
@click.argument("case", default=DEFAULT_CASE)
@click.argument("port", required=False)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write what was found to this file.")
@click.option("--explain/--no-explain", default=True, show_default=True, help="Look for the cause of each fault.")
@run_options("locate")
def command(case: str, port: str | None, json_path: Path | None, explain: bool, **asked: Any) -> int:
    """Name every wrong layer and part of a port, and the proven cause of each.

    Each layer of the port runs alone, on the inputs of the reference's layer: this tells a wrong layer from one that
    inherits an error. A cause is stated only if, applied to the reference, it reproduces the port's wrong values.
    Two folders of attached trainers in place of CASE: what differs in their loops, in their models' layers and in their
    optimizers. Their scripts are run again for that, up to the first step.

    Exit code 0: nothing is wrong; 1: faults were found.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.files.recordings import write_json
    from twinalign.runs.options import run_settings
    from twinalign.search.attached import locate_attached
    from twinalign.search.locator import locate
    from twinalign.terminal import show

    with SideProgress() as progress:
        settings = run_settings(case, **asked)
        if port is None:
            result = locate(settings, progress, explain)
        else:
            result = locate_attached(Path(case), Path(port), settings, progress, explain)
    show(result)
    if json_path is not None:
        write_json(json_path, result.to_json())
    return int(result.exit_code)
