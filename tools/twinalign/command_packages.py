"""Packages that carry the name of a command can be called as it: `twinalign.locate("case.py")`."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any


class _CommandPackage(types.ModuleType):
    """A package whose call is the function of its name in `twinalign.api`."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        api = importlib.import_module("twinalign.api")
        return getattr(api, self.__name__.rpartition(".")[2])(*arguments, **options)


def callable_as_command(name: str) -> None:
    """Let the package `name` be called.

    Importing a subpackage binds it in its parent, where a function of the same name would be lost.
    """
    sys.modules[name].__class__ = _CommandPackage
