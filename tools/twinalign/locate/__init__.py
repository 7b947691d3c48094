"""Which layers and parts of a port are wrong, each judged alone on what the reference saw there, and why."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from twinalign.command_packages import callable_as_command

if TYPE_CHECKING:
    from twinalign.locate.locator import LocateResult as LocateResult
    from twinalign.locate.locator import Locator as Locator
    from twinalign.locate.locator import locate as locate

_NAMES = ("Locator", "LocateResult", "locate")


def __getattr__(name: str) -> Any:
    # Imported on first use: a recorder process wants parts of this package and not the parent's.
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("twinalign.locate.locator"), name)


callable_as_command(__name__)
