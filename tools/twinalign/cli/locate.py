"""`twinalign locate`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import case_argument, run_options
from twinalign.cli.outputs import finish, output_option


@click.command("locate")
@case_argument
@click.argument("port", required=False)
@output_option("--json", "json_path", "Write what was found")
@click.option("--explain/--no-explain", default=True, show_default=True, help="Look for the cause of each fault.")
@run_options("locate")
def command(case: str, port: str | None, json_path: Path | None, explain: bool, **asked: Any) -> int:
    """Name every wrong layer and part of a port, and the proven cause of each.

    Each layer of the port runs alone, on the inputs of the reference's layer: this tells a wrong layer from one that
    inherits an error. A cause is stated only if, applied to the reference, it reproduces the port's wrong values.
    Two folders of attached trainers in place of CASE: what differs in their loops, in their models' layers and in their
    optimizers. Their scripts are run again for that, up to the first step.

    Exit code 0: nothing is wrong; 1: faults were found; 3: a part of the case
    could not be searched, and the others have no fault.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.runs.options import run_settings
    from twinalign.search.attached import locate_attached
    from twinalign.search.locator import locate

    with SideProgress() as progress:
        settings = run_settings(case, **asked)
        if port is None:
            result = locate(settings, progress, explain)
        else:
            result = locate_attached(Path(case), Path(port), settings, progress, explain)
    return finish(result, json_path)
