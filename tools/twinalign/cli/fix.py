"""`twinalign fix`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import case_argument, run_options
from twinalign.cli.outputs import finish, output_option


@click.command("fix")
@case_argument
@click.option("--write", is_flag=True, help="Change the files, too; comments and formatting are kept.")
@output_option("--json", "json_path", "Write edits and what is left")
@run_options("fix")
def command(case: str, write: bool, json_path: Path | None, **asked: Any) -> int:
    """Mend a port by proven edits of its source, as a patch.

    Each proven cause becomes an edit of the port's source. An edit is kept only if a re-run of both sides with it shows
    that its fault is gone and no other has come, on the case's inputs and on a second draw of them. OUT/fix.patch holds
    the edits for `git apply`; no file is changed without --write, and none of an installed package is.

    Exit code 0: aligned with the patch, or nothing was wrong; 1: something is left, which is named.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.repair.fix import fix
    from twinalign.runs.options import run_settings

    with SideProgress() as progress:
        result = fix(run_settings(case, **asked), progress, write)
    return finish(result, json_path)
