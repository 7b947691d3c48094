"""`twinalign verify`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import run_options
from twinalign.cli.outputs import finish, output_option


@click.command("verify")
@click.argument("bundle", type=click.Path(path_type=Path), metavar="FILE")
@output_option("--json", "json_path", "Write the result with all evidence")
@click.option("--replay", is_flag=True, help="Run the packed case again here: this executes code out of the bundle.")
@run_options("verify")
def command(bundle: Path, json_path: Path | None, replay: bool, data: Path | None, debug: bool, **asked: Any) -> int:
    """Check FILE, a bundle of `twinalign pack`, trusting nobody.

    Every verdict is recomputed from the arrays and compared with the claim, and signs of fabrication are named.
    No framework is needed, and nothing in the bundle is executed unless --replay is given.

    Exit codes: 0 aligned and as claimed; 1 diverged, or not as claimed; 2 no bundle, damaged or hostile;
    3 inconclusive, or suspect: signs of fabrication, or excuses that the arrays do not bear out; 4 a side crashed in
    --replay.

    Numbers that were made up with care leave no sign in a bundle; only --replay tells them from recordings.
    """
    from twinalign import api
    from twinalign.cli.progress import SideProgress
    from twinalign.errors import InputError

    if not replay and (data or any(asked.values())):
        raise InputError(
            "--ref-python, --paddle-python, --data and --set say how to run the case: give --replay as well"
        )
    if data is not None:
        asked["options"]["data"] = str(data.absolute())
    with SideProgress(in_passing=["verify"]) as progress:  # else lines would stand before the one that refuses a bundle
        result = api.verify(bundle, replay=replay, progress=progress, **asked)
    # ASCII only: text from a stranger must not control the terminal where this is read.
    return finish(result, json_path, ascii_only=True)
