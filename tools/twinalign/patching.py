"""Attributes of classes, modules and objects that are something else for as long as a block lasts."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let `owner.name` be something else inside the block; what it had, its own or inherited, is there again after."""
    plain = isinstance(owner, (type, types.ModuleType))
    # A framework's layer has a setter of its own, which enters parameters and layers.
    give, take = (setattr, delattr) if plain else (object.__setattr__, object.__delattr__)
    had, before = name in vars(owner), vars(owner).get(name)
    give(owner, name, value)
    try:
        yield
    finally:
        if had:
            give(owner, name, before)
        else:
            take(owner, name)


def family(kind: Any) -> list[Any]:
    """A class and all that derive from it."""
    return [kind, *(below for child in kind.__subclasses__() for below in family(child))]
