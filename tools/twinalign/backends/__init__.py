"""One module a framework, with the same functions; each imports its framework, so only a recorder process loads it."""

from __future__ import annotations

import importlib
from types import ModuleType

FRAMEWORK_OF_SIDE = {"ref": "torch", "paddle": "paddle"}
"""The framework that records each side: the reference is torch, the reproduced port is paddle."""


def load_backend(framework: str) -> ModuleType:
    """Import and return the backend of `"torch"` or `"paddle"`; raises ImportError where it is not installed."""
    return importlib.import_module(f"twinalign.backends.{framework}_backend")
