"""twinalign: port models from PyTorch to PaddlePaddle and know that the port is right.

The commands are functions here (`twinalign.run`, `twinalign.compare`, …, see `twinalign.api`), imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from twinalign.case import Case as Case
from twinalign.errors import ExitCode as ExitCode
from twinalign.errors import InputError as InputError
from twinalign.errors import SideCrashError as SideCrashError
from twinalign.errors import TwinalignError as TwinalignError

if TYPE_CHECKING:
    from twinalign.api import compare as compare
    from twinalign.api import convert as convert
    from twinalign.api import doctor as doctor
    from twinalign.api import init as init
    from twinalign.api import locate as locate
    from twinalign.api import pack as pack
    from twinalign.api import record as record
    from twinalign.api import report as report
    from twinalign.api import run as run
    from twinalign.api import selftest as selftest
    from twinalign.api import verify as verify
    from twinalign.api import zoo as zoo

__version__ = "0.1.0"

_COMMANDS = (
    "run",
    "record",
    "compare",
    "locate",
    "convert",
    "selftest",
    "report",
    "pack",
    "verify",
    "doctor",
    "init",
    "zoo",
)
# Packages of these names are there as well: importing one binds it here, so it is the package that is called.
_PACKAGES = ("locate", "convert", "selftest", "report", "zoo")


def __getattr__(name: str) -> Any:
    if name not in _COMMANDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _PACKAGES:
        return importlib.import_module(f"twinalign.{name}")
    return getattr(importlib.import_module("twinalign.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_COMMANDS})
