"""`twinalign zoo`."""

from __future__ import annotations

from pathlib import Path

import click

_OUTPUT = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@click.command("zoo")
@click.argument("names", nargs=-1, metavar="[NAME…]")
@click.option("--list", "only_list", is_flag=True, help="Show which architectures there are, and run none.")
@click.option("--size", type=click.IntRange(min=32), default=224, show_default=True, help="Edge of the images.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("result/zoo"), show_default=True, help="Output folder."
)
@click.option("--json", "json_path", type=_OUTPUT, metavar="FILE", help="Write every outcome; - is stdout.")
@click.option("--md", "markdown_path", type=_OUTPUT, metavar="FILE", help="Write a Markdown table; - is stdout.")
@click.option("--ref-python", metavar="PYTHON", help="Interpreter that has torchvision; twinalign need not be there.")
@click.option("--paddle-python", metavar="PYTHON", help="Interpreter that has paddle; twinalign need not be there.")
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True)
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(
    names: tuple[str, ...],
    only_list: bool,
    size: int,
    out: Path,
    json_path: Path | None,
    markdown_path: Path | None,
    ref_python: str | None,
    paddle_python: str | None,
    device: str,
    debug: bool,
) -> int:
    """Align the architectures that torchvision and paddle.vision share: those named, or all.

    No name lists are given: keys find their partners by name, or by running both models. Where the two libraries'
    networks really differ, the table says in what. All of them take a quarter of an hour on two cores; an architecture
    whose recordings are still there and fresh takes seconds.

    Exit codes: 0 all aligned, 1 some diverged, 2 bad input, 3 inconclusive, 4 a side crashed.
    """
    import json

    from twinalign.cli.progress import SideProgress
    from twinalign.errors import InputError
    from twinalign.recording import write_text
    from twinalign.zoo.architectures import chosen, installed
    from twinalign.zoo.running import run_zoo
    from twinalign.zoo.tables import markdown, print_zoo

    pythons = {"ref": ref_python, "paddle": paddle_python}
    on_stdout = [str(path) for path in (json_path, markdown_path)].count("-")
    if on_stdout > 1:
        raise InputError("--json and --md: only one of them can go to stdout")
    if only_list:
        for name in chosen(names, installed(pythons)):
            click.echo(name)
        return 0
    with SideProgress() as progress:
        result = run_zoo(
            names,
            out=out,
            size=size,
            device=device,
            pythons=pythons,
            progress=progress,
            on_outcome=lambda outcome: progress("zoo", f"{outcome.name}: {outcome.verdict}"),
        )
    texts = {
        json_path: lambda: json.dumps(result.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        markdown_path: lambda: markdown(result),
    }
    for path, make in texts.items():
        if path is not None and str(path) == "-":
            click.echo(make(), nl=False)
        elif path is not None:
            write_text(path, make())
    if not on_stdout:
        print_zoo(result)
    return int(result.exit_code)
