"""`twinalign info`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import case_argument, run_options
from twinalign.cli.outputs import finish, output_option


@click.command("info")
@case_argument
@output_option("--json", "json_path", "Write the counts")
@run_options("info")
def command(case: str, json_path: Path | None, **asked: Any) -> int:
    """Count parameters, buffers and FLOPs of both models, layer by layer, and mark what differs.

    Each model runs once on the case's inputs. Layers are paired by their path, or as `rename` in the case pairs them.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.runs.model_info import info
    from twinalign.runs.options import run_settings

    with SideProgress() as progress:
        result = info(run_settings(case, **asked), progress)
    return finish(result, json_path)
