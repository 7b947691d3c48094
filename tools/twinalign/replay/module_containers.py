"""Lists, dictionaries and sets of plain values at the top of the user's modules and classes.

Code with an edit in it may change them in place, and whatever runs next would read what it has left there.
"""

import contextlib
import copy
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

from twinalign.patching import is_installed

_MOST = 10_000
"""Elements that are looked at; whoever holds more rarely changes it."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_installed = functools.cache(is_installed)
_copies: dict[int, tuple[Any, Any]] = {}
"""Container and what it held, None where that is more than plain values, by its `id`."""


@contextlib.contextmanager
def containers_kept() -> Iterator[None]:
    """What the block changes in containers of modules is undone at its end."""
    watched = list[tuple[Any, Any]]()
    for held in _held():
        before = _copies.get(id(held))
        if before is None or before[0] is not held or (before[1] is not None and not _is_same(held, before[1])):
            before = _copies[id(held)] = held, copy.deepcopy(held) if _is_plain(held, [_MOST]) else None
        if before[1] is not None:
            watched.append(before)
    try:
        yield
    finally:
        for held, before in watched:
            if not _is_same(held, before):
                _restore(held, copy.deepcopy(before))


def _held() -> Iterator[Any]:
    for module in [module for name, module in list(sys.modules.items()) if not _installed(name)]:
        if not isinstance(module, types.ModuleType):
            continue
        for value in list(vars(module).values()):
            if type(value) in (list, dict, set):
                yield value
            elif isinstance(value, type) and value.__module__ == module.__name__:
                yield from (inner for inner in list(vars(value).values()) if type(inner) in (list, dict, set))


def _is_plain(value: Any, left: list[int]) -> bool:
    """Whether all of it is plain values, of which there are no more than are left."""
    left[0] -= 1
    if left[0] < 0:
        return False
    if type(value) is dict:
        return all(_is_plain(key, left) and _is_plain(inner, left) for key, inner in value.items())
    if type(value) in (list, tuple, set, frozenset):
        return all(_is_plain(inner, left) for inner in value)
    return isinstance(value, _PLAIN)


def _is_same(held: Any, before: Any) -> bool:
    try:
        return bool(held == before)
    except Exception:  # an array was put into it
        return False


def _restore(held: Any, before: Any) -> None:
    if isinstance(held, list):
        held[:] = before
    else:
        held.clear()
        held.update(before)
