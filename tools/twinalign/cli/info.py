"""`twinalign info`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import DEFAULT_CASE, run_options


@click.command("info")
@click.argument("case", default=DEFAULT_CASE)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the counts to this file.")
@run_options("info")
def command(case: str, json_path: Path | None, **asked: Any) -> int:
    """Count parameters, buffers and FLOPs of both models, layer by layer, and mark what differs.

    Each model runs once on the case's inputs. Layers are paired by their path, or as `rename` in the case pairs them.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.files.recordings import write_json
    from twinalign.runs.model_info import info
    from twinalign.runs.options import run_settings
    from twinalign.terminal import show

    with SideProgress() as progress:
        result = info(run_settings(case, **asked), progress)
    show(result)
    if json_path is not None:
        write_json(json_path, result.to_json())
    return int(result.exit_code)
