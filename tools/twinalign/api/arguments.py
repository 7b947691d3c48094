"""What the functions of the API share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from twinalign.recorder.run_settings import RunSettings
from twinalign.runs.options import require_known, run_settings

Progress = Callable[[str, str], None]
"""Called with a side and what it is doing."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def quiet(side: str, text: str) -> None:
    """Show no progress."""


def names_unknown_options(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Reject an unknown keyword in one line that suggests the nearest known one."""
    known = [name for name, it in inspect.signature(function).parameters.items() if it.kind is it.KEYWORD_ONLY]

    @functools.wraps(function)
    def checked(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        require_known(function.__name__, options.keys() - {"case", "side"}, known)
        return function(*arguments, **options)

    return checked


def settings_of(arguments: Mapping[str, Any], *others: str) -> RunSettings:
    """The settings of a run from a function's arguments; `others` and `progress` are not among them."""
    return run_settings(**{name: value for name, value in arguments.items() if name not in ("progress", *others)})
