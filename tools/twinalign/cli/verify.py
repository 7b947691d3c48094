"""`twinalign verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from twinalign.bundle.contents import Contents


@click.command("verify")
@click.argument("bundle", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the result with all evidence; - is stdout.",
)
@click.option("--replay", is_flag=True, help="Run the packed case again here: this executes code out of the bundle.")
@click.option("--ref-python", metavar="PYTHON", help="With --replay: interpreter that has torch.")
@click.option("--paddle-python", metavar="PYTHON", help="With --replay: interpreter that has paddle.")
@click.option("--data", type=click.Path(path_type=Path), help="With --replay: the data folder of the case.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="With --replay: an option of the case.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    bundle: Path,
    json_path: Path | None,
    replay: bool,
    ref_python: str | None,
    paddle_python: str | None,
    data: Path | None,
    settings: tuple[str, ...],
    debug: bool,
) -> int:
    """Check FILE, a bundle of `twinalign pack`, trusting nobody.

    Every verdict is recomputed from the arrays and compared with what is claimed, and signs of fabrication are named.
    No framework is needed, and nothing in the bundle is executed unless --replay is given.

    Exit codes: 0 aligned and as claimed; 1 diverged, not as claimed, or signs of fabrication; 2 no bundle, damaged or
    hostile; 3 inconclusive; 4 a side crashed in --replay.
    """
    import json

    from twinalign.bundle.text import text_lines
    from twinalign.bundle.verifying import verify_bundle
    from twinalign.cli.options import parse_settings
    from twinalign.cli.progress import SideProgress
    from twinalign.errors import InputError
    from twinalign.recording import write_text

    if not replay and (ref_python or paddle_python or data or settings):
        raise InputError(
            "--ref-python, --paddle-python, --data and --set say how to run the case: give --replay as well"
        )
    options = parse_settings(settings, data.absolute() if data else None)

    with SideProgress() as progress:

        def run_again(contents: Contents) -> dict[str, Any]:
            from twinalign.bundle.replay import replay_case

            pythons = {"ref": ref_python, "paddle": paddle_python}
            return replay_case(contents, pythons=pythons, options=options, progress=progress)

        result = verify_bundle(
            bundle, replay=run_again if replay else None, progress=lambda text: progress("verify", text)
        )
    if json_path is not None:
        # ASCII alone: letters of a stranger's choice must not steer the terminal that this is looked at with.
        text = json.dumps(result.to_json(), indent=1, ensure_ascii=True, allow_nan=False) + "\n"
        if str(json_path) == "-":
            click.echo(text, nl=False)
            return int(result.exit_code)
        write_text(json_path, text)
    for line in text_lines(result):
        click.echo(line)
    return int(result.exit_code)
