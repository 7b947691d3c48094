"""Options of commands that write what people read of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from twinalign.errors import InputError
from twinalign.report.language import CODES

_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


def reporting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--md`, `--junit` and `--lang`."""
    for option in (
        click.option(
            "--lang",
            type=click.Choice(CODES),
            default="en",
            show_default=True,
            help="Language of report.html and of --md.",
        ),
        click.option("--junit", type=_FILE, metavar="FILE", help="Write JUnit XML: a suite a stage, a test a tensor."),
        click.option("--md", type=_FILE, metavar="FILE", help="Write a table for a pull request; - is stdout."),
    ):
        function = option(function)
    return function


def to_stdout(md: Path | None, junit: Path | None) -> bool:
    """Whether one of the files goes to stdout; raises InputError where both do."""
    count = [str(path) for path in (md, junit)].count("-")
    if count > 1:
        raise InputError("--md and --junit: only one of them can go to stdout")
    return count > 0


def write_asked(folder: Path, md: Path | None, junit: Path | None, lang: str) -> list[Path]:
    """Write the files that were asked for from a finished run; returns those that are no stdout.

    Raises:
        InputError: no run has finished in the folder, or both files are to go to stdout.
    """
    to_stdout(md, junit)
    from twinalign.recording import write_text
    from twinalign.report.junit import junit as as_junit
    from twinalign.report.markdown import markdown
    from twinalign.report.summary import load_summary

    written = []
    for path, make in ((md, lambda: markdown(load_summary(folder), lang)), (junit, lambda: as_junit(folder))):
        if path is None:
            continue
        if str(path) == "-":
            click.echo(make(), nl=False)
        else:
            write_text(path, make())
            written.append(path)
    return written
