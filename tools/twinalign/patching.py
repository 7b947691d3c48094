"""Attributes of classes, modules and objects, replaced inside a block."""

import contextlib
import inspect
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from pathlib import Path
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
        for module, name in _NAMES.setdefault(inspect.unwrap(function), _Names()).of(function):
            stack.enter_context(replaced(module, name, value))
        yield


_INSTALLED = tuple({*map(sysconfig.get_path, ("purelib", "platlib")), str(Path(__file__).parent)})
"""Where modules lie that keep their names once they are imported."""


class _Names:
    """What imported modules call a function, whatever is wrapped around it at the time.

    Two frameworks import thousands of modules: a search through all their names takes longer than a step of a small
    training. Installed modules are searched once.
    """

    def __init__(self) -> None:
        self._searched = set[str]()
        self._names: list[tuple[types.ModuleType, str]] = []

    def of(self, function: Any) -> list[tuple[types.ModuleType, str]]:
        found = [(module, name) for module, name in self._names if vars(module).get(name) is function]
        for key in sys.modules.keys() - self._searched:
            module = sys.modules[key]
            names = list[tuple[types.ModuleType, str]]()
            if isinstance(module, types.ModuleType):
                names = [(module, name) for name, held in vars(module).items() if held is function]
            if not isinstance(module, types.ModuleType) or is_installed(key):
                self._searched.add(key)
                self._names += names
            found += names
        return found


def is_installed(key: str) -> bool:
    """Whether a module of this name is Python's, a package's or twinalign's own, and not the user's."""
    package = key.partition(".")[0]
    module = sys.modules.get(package)
    # A package without a file of its own has folders.
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return package in sys.stdlib_module_names or file.startswith(_INSTALLED)


_NAMES: dict[Any, _Names] = {}
"""By function without its wrappers."""
