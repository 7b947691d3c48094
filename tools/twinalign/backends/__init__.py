"""One module a framework, with the same functions; each imports its framework, so only a recorder process loads it."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from twinalign.errors import InputError

FRAMEWORK_OF_SIDE = {"ref": "torch", "paddle": "paddle"}
"""The framework that records each side: the reference is torch, the reproduced port is paddle."""


def load_backend(framework: str) -> ModuleType:
    """Import and return the backend of `"torch"` or `"paddle"`; raises ImportError where it is not installed."""
    return importlib.import_module(f"twinalign.backends.{framework}_backend")


def load_distributed(framework: str) -> ModuleType:
    """Import and return what several processes of `"torch"` or `"paddle"` need."""
    return importlib.import_module(f"twinalign.backends.{framework}_distributed")


def backend_of_side(side: str) -> ModuleType:
    """The backend of the framework that records `side`; raises InputError where this interpreter lacks it."""
    framework = FRAMEWORK_OF_SIDE[side]
    try:
        return load_backend(framework)
    except ModuleNotFoundError as error:
        if error.name != framework:
            raise
        raise InputError(
            f"{sys.executable} has no {framework}; install it there, or name an interpreter that has it "
            f"with --{side}-python"
        ) from None
