"""`twinalign zoo`."""

from pathlib import Path
from typing import Any

import click

from twinalign.cli.options import run_options
from twinalign.cli.outputs import json_text, one_to_stdout, output_option, write_output
from twinalign.sides import SIDES


@click.command("zoo")
@click.argument("names", nargs=-1, metavar="[NAME…]")
@click.option("--list", "only_list", is_flag=True, help="List the architectures without running them.")
@click.option(
    "--size", type=click.IntRange(min=32), default=224, show_default=True, help="Height and width of the images."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("result/zoo"), show_default=True, help="Output folder."
)
@output_option("--json", "json_path", "Write every outcome")
@output_option("--md", "markdown_path", "Write a Markdown table")
@run_options("zoo")
def command(
    names: tuple[str, ...],
    only_list: bool,
    json_path: Path | None,
    markdown_path: Path | None,
    debug: bool,
    **asked: Any,
) -> int:
    """Align the architectures that torchvision and paddle.vision share: those named, or all.

    No name lists are needed: keys are matched by name, or by running both models. If the two libraries' networks
    really differ, the table says how. All of them take a quarter of an hour on two cores; an architecture with valid
    recordings takes seconds.

    Exit codes: 0 all aligned, 1 some diverged, 2 bad input, 3 inconclusive, 4 a side crashed.
    """
    from twinalign.cli.progress import SideProgress
    from twinalign.model_zoo.align_architectures import run_zoo
    from twinalign.model_zoo.architectures import chosen, installed
    from twinalign.reports.tables import zoo_markdown
    from twinalign.terminal import show

    pythons = {side: asked.pop(f"{side}_python") for side in SIDES}
    quiet = one_to_stdout(json=json_path, md=markdown_path)
    if only_list:
        for name in chosen(names, installed(pythons)):
            click.echo(name)
        return 0
    with SideProgress() as progress:
        result = run_zoo(
            names,
            **asked,
            pythons=pythons,
            progress=progress,
            on_outcome=lambda outcome: progress("zoo", f"{outcome.name}: {outcome.verdict}"),
        )
    write_output(json_path, lambda: json_text(result.to_json()))
    write_output(markdown_path, lambda: zoo_markdown(result.to_json()))
    if not quiet:
        show(result)
    return int(result.exit_code)
