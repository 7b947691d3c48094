"""Attributes of classes, modules and objects, replaced inside a block."""

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

Around = Callable[[Any], contextlib.AbstractContextManager[Any]]
"""Given a model, returns a context manager for its training."""


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace `owner.name` inside the block, and restore it afterwards, whether it was its own or inherited."""
    plain = isinstance(owner, (type, types.ModuleType))
    # Frameworks' layers have their own setter, which registers parameters and layers.
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
    """A class and all its subclasses, direct or not."""
    return [kind, *(below for child in kind.__subclasses__() for below in family(child))]


@contextlib.contextmanager
def replaced_everywhere(function: Any, value: Any) -> Iterator[None]:
    """Replace a function under every name that an imported module has for it, as after `from x import function`."""
    with contextlib.ExitStack() as stack:
        for module in list(sys.modules.values()):
            if isinstance(module, types.ModuleType):
                for name in [name for name, held in vars(module).items() if held is function]:
                    stack.enter_context(replaced(module, name, value))
        yield
