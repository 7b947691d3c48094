"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from twinalign.case import STAGES
from twinalign.errors import InputError
from twinalign.jobs import PRECISIONS, SIDES, SWAPS
from twinalign.verdict.equivalence import DEFAULT_MARGIN

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
            click.option("--stages", metavar="A,B,…", help="Stages to take, comma-separated; all by default."),
            click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True),
            click.option(
                "--precision",
                type=click.Choice(PRECISIONS),
                default="both",
                show_default=True,
                help="What is recorded; a half precision is judged by the reference's own error in it.",
            ),
            click.option(
                "--ranks",
                type=int,
                default=1,
                show_default=True,
                metavar="N",
                help="Record loss, backward and train as N processes a side, started by torchrun and "
                "paddle.distributed.launch; the other stages as one.",
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


def training_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What more the train stage may be asked for."""
    for option in reversed(
        [
            click.option("--seeds", type=int, default=1, show_default=True, help="Trainings a side, of as many seeds."),
            click.option(
                "--margin",
                type=float,
                default=DEFAULT_MARGIN,
                show_default=True,
                metavar="POINTS",
                help="With --seeds: how far apart mean outcomes may be and count as equivalent.",
            ),
            click.option(
                "--tensorboard", is_flag=True, help="Write TensorBoard logs of all trainings into OUT/tensorboard."
            ),
            click.option(
                "--switch-at",
                type=int,
                default=0,
                metavar="STEP",
                help="Train once more, the first STEP steps on one side and the rest on the other.",
            ),
            click.option(
                "--switch-from",
                type=click.Choice(SIDES),
                default="ref",
                show_default=True,
                help="With --switch-at: the side to begin on.",
            ),
            click.option(
                "--swap",
                "swaps",
                type=click.Choice(SWAPS),
                multiple=True,
                help="Put the reference's batches, first weights, or weights after each step into the port's training, "
                "or leave nothing but its network; the part whose swap removes the difference is named.",
            ),
        ]
    ):
        function = option(function)
    return function


def split_stages(text: str | None) -> tuple[str, ...]:
    """Stage names from a comma-separated text, none where it is not given; raises InputError where it names none."""
    stages = tuple(stage.strip() for stage in (text or "").split(",") if stage.strip())
    if text is not None and not stages:
        raise InputError(
            f"--stages {text!r}: names no stage; leave it out for all, or give some of {', '.join(STAGES)}"
        )
    return stages
