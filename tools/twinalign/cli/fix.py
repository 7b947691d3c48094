"""`twinalign fix`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import DEFAULT_CASE, run_options


@click.command("fix")
@click.argument("case", default=DEFAULT_CASE)
@click.option("--write", is_flag=True, help="Change the files, too; comments and formatting are kept.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write edits and what is left to this file.")
@run_options("fix")
def command(case: str, write: bool, json_path: Path | None, **asked: Any) -> int:
    """Mend a port by proven edits of its source, as a patch.

    Each proven cause becomes an edit of the port's source. An edit is kept only if a re-run of both sides with it shows
    that its fault is gone and no other has come, on the case's inputs and on a second draw of them. OUT/fix.patch holds
    the edits for `git apply`; no file is changed without --write, and none of an installed package is.

    Exit code 0: aligned with the patch, or nothing was wrong; 1: something is left, which is named.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.files.recordings import write_json
    from twinalign.repair.fix import fix
    from twinalign.runs.options import run_settings
    from twinalign.terminal import show

    with SideProgress() as progress:
        result = fix(run_settings(case, **asked), progress, write)
    show(result)
    if json_path is not None:
        write_json(json_path, result.to_json())
    return int(result.exit_code)
