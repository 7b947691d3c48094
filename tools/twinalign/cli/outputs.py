"""Files with results, `-` for stdout."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from twinalign.errors import InputError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def output_option(flag: str, name: str, text: str) -> Decorator:
    """An option for a file, or `-` for stdout."""
    kind = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
    return click.option(flag, name, type=kind, metavar="FILE", help=f"{text}; - is stdout.")


def reporting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--md` and `--junit`."""
    junit = output_option("--junit", "junit", "Write JUnit XML: one suite per stage, one test per tensor")
    return output_option("--md", "md", "Write a table for a pull request")(junit(function))


def one_to_stdout(**files: Path | None) -> bool:
    """Whether one of the files goes to stdout; raises InputError if several do."""
    count = [str(path) for path in files.values()].count("-")
    if count > 1:
        *first, last = (f"--{name}" for name in files)
        raise InputError(f"{', '.join(first)} and {last}: only one of them can go to stdout")
    return count > 0


def write_output(path: Path | None, make: Callable[[], str]) -> bool:
    """Write what `make` returns, if asked for; returns whether a file was written."""
    if path is None:
        return False
    text = make()
    if str(path) == "-":
        click.echo(text, nl=False)
        return False
    from twinalign.files.recordings import write_text

    write_text(path, text)
    return True


def json_text(found: dict[str, Any], ascii_only: bool = False) -> str:
    """Strict JSON."""
    return json.dumps(found, indent=1, ensure_ascii=ascii_only, allow_nan=False) + "\n"


def finish(result: Any, json_path: Path | None, ascii_only: bool = False, **how: Any) -> int:
    """Write the JSON of a result if asked for, and show it unless that went to stdout; returns the exit code.

    `how`: options of the function that prints this kind of result.
    """
    from twinalign.terminal import show

    write_output(json_path, lambda: json_text(result.to_json(), ascii_only))
    if not one_to_stdout(json=json_path):
        show(result, **how)
    return int(result.exit_code)


def write_reports(folder: Path, md: Path | None, junit: Path | None, language: str) -> list[Path]:
    """Write the requested files from a finished run; returns the paths of those that are not stdout.

    Raises:
        InputError: no run has finished in the folder, or both files would go to stdout.
    """
    one_to_stdout(md=md, junit=junit)
    from twinalign.reports.junit import junit as as_junit
    from twinalign.reports.markdown import markdown
    from twinalign.reports.summary import load_summary

    asked = ((md, lambda: markdown(load_summary(folder), language)), (junit, lambda: as_junit(folder)))
    return [path for path, make in asked if write_output(path, make) and path is not None]
