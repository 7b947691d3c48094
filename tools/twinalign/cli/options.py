"""The options of `RUN_OPTIONS` on the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from twinalign.errors import InputError
from twinalign.runs.options import REQUIRED, RUN_OPTIONS, RunOption
from twinalign.sides import INITIAL, STAGES

DEFAULT_CASE = "moco_v3_vit_small"


def case_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument CASE; where it is left out in a folder with a case.py, the command says what it takes."""
    return click.argument("case", default=DEFAULT_CASE, callback=_told_if_left_out)(function)


def _told_if_left_out(context: click.Context, parameter: click.Parameter, case: str) -> str:
    if context.get_parameter_source("case") is ParameterSource.DEFAULT and Path("case.py").is_file():
        told = f"taking {case}; for the case.py in this folder: twinalign {context.info_name} case.py"
        click.echo(told, err=True)
    return case


def run_options(command: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options in `RUN_OPTIONS` that belong to a command."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(RUN_OPTIONS):
            if command in option.commands:
                function = _as_click(option, command)(function)
        return function

    return decorate


def _as_click(option: RunOption, command: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    default = option.default_of.get(command, option.default)
    written = option.flag or "--" + option.name.replace("_", "-")
    told: dict[str, Any] = {"help": option.help_of.get(command, option.help) or None, "metavar": option.metavar}
    if default is REQUIRED:
        told["required"] = True
    elif not isinstance(option.default, tuple | dict):
        told |= {"default": default, "show_default": bool(default)}
    if option.is_path or isinstance(option.default, Path):
        told["type"] = click.Path(path_type=Path)
    elif option.choices:
        told |= {"type": click.Choice(option.choices), "multiple": isinstance(option.default, tuple)}
    elif isinstance(option.default, bool):
        told["is_flag"] = True
        written = f"{written}/--no-{option.name}" if option.default else written
    elif isinstance(option.default, tuple):
        told["callback"] = lambda context, parameter, text: split_stages(text)
    elif isinstance(option.default, dict):
        told |= {"multiple": True, "callback": lambda context, parameter, pairs: _by_name(pairs)}
    return click.option(written, option.name, **told)


def split_stages(text: str | None) -> tuple[str, ...]:
    """Stage names from a comma-separated text; raises InputError if it is given but names none."""
    stages = tuple(stage.strip() for stage in (text or "").split(",") if stage.strip())
    if text is not None and not stages:
        raise InputError(
            f"--stages {text!r}: names no stage; leave it out for all, or give some of {', '.join((*STAGES, INITIAL))}"
        )
    return stages


def _by_name(pairs: tuple[str, ...]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--set {pair}: NAME=VALUE expected")
        options[name] = value
    return options
