"""twinalign: port models from PyTorch to PaddlePaddle and know that the port is right.

The commands are functions here (`twinalign.run`, `twinalign.compare`, …, see `twinalign.api`), imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from twinalign.case.definition import Case
from twinalign.errors import ExitCode, InputError, SideCrashError, TwinalignError
from twinalign.version import __version__

if TYPE_CHECKING:
    from twinalign.api import (
        check_port,
        compare,
        convert,
        doctor,
        fix,
        info,
        init,
        locate,
        pack,
        port,
        record,
        report,
        run,
        selftest,
        session,
        verify,
        zoo,
    )
    from twinalign.attached.attachment import attach

__all__ = ["Case", "ExitCode", "InputError", "SideCrashError", "TwinalignError", "__version__", "compare", "convert"]
__all__ += [
    "attach",
    "check_port",
    "doctor",
    "fix",
    "info",
    "init",
    "locate",
    "pack",
    "port",
    "record",
    "report",
    "run",
    "selftest",
    "session",
    "verify",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name == "attach":  # in a trainer's process, which may have numpy and its framework alone
        return importlib.import_module("twinalign.attached.attachment").attach
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("twinalign.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
