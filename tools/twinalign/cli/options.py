"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from twinalign.errors import InputError
from twinalign.jobs import PRECISIONS

DEFAULT_CASE = "moco_v3_vit_small"


def parse_settings(pairs: tuple[str, ...], data: Path | None) -> dict[str, str]:
    """`NAME=VALUE` texts and `--data` as a dictionary; raises InputError on a text without `=`."""
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set {pair}: NAME=VALUE expected")
        options[key] = value
    if data is not None:
        options["data"] = str(data)
    return options


def recording_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that record."""
    for option in reversed(
        [
            click.option(
                "--stages", default="", metavar="A,B,…", help="Stages to take, comma-separated; all by default."
            ),
            click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True),
            click.option(
                "--precision",
                type=click.Choice(PRECISIONS),
                default="both",
                show_default=True,
                help="What is recorded; a half precision is judged by the reference's own error in it.",
            ),
            click.option(
                "--accuracy-compatible",
                is_flag=True,
                help="Use paddle's kernels that compute as torch's do (3.3 and later), and say what they change.",
            ),
            click.option(
                "--data", type=click.Path(path_type=Path), help="Data folder of the case (its option `data`)."
            ),
            click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set an option of the case."),
            click.option("--fresh", is_flag=True, help="Record anew, reuse nothing."),
            click.option("--debug", is_flag=True, help="Show tracebacks of errors."),
        ]
    ):
        function = option(function)
    return function


def split_stages(text: str) -> tuple[str, ...]:
    """Stage names from a comma-separated text."""
    return tuple(stage.strip() for stage in text.split(",") if stage.strip())
