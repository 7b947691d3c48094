"""Calls that need not run again in a pass that differs from an earlier one behind them alone."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from twinalign.backends.protocol import Backend
from twinalign.replay.nested_tensors import take_apart

_Key = tuple[str, int]
"""Path of a layer, and how many of its calls came before."""


@dataclasses.dataclass(frozen=True)
class _Known:
    """What a call returned, the places of what began inside, and what tells whether its tensors are as they were."""

    result: Any
    inside: range
    versions: list[int]


class KnownBefore:
    """Of passes in which layers are changed, the first one, whose results stand in for calls of those that follow.

    A call that ended before the first one of a layer that is changed in one pass alone returns what it did. One that
    draws random numbers runs again, and one whose result was changed in place afterwards.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._begun: list[_Key] = []
        self._known: dict[_Key, _Known] = {}
        self._changes: Mapping[int, str] | None = None
        self._same = 0
        """So many calls of the first pass came before what is another in this one."""
        self._first = True

    def begin(self, changes: Mapping[int, str], other_inputs: bool) -> None:
        """Begin a pass with these changes: any number that tells them apart → path of the layer."""
        self._first = self._changes is None
        if self._changes is None:
            self._changes = changes
        paths = {{**self._changes, **changes}[one] for one in self._changes.keys() ^ changes.keys()}
        places = (place for place, (path, _) in enumerate(self._begun) if path in paths)
        self._same = 0 if other_inputs else next(places, len(self._begun))

    def result(self, key: _Key, counts: Counter[str], run: Callable[[], Any]) -> Any:
        """What a call returns, by running it if need be; else what it calls is added to `counts`."""
        if self._first:
            return self._noted(key, run)
        known = self._known.get(key)
        if known is None or known.inside.stop > self._same or known.versions != self._versions(known.result):
            return run()
        counts.update(self._begun[place][0] for place in known.inside)
        return known.result

    def _noted(self, key: _Key, run: Callable[[], Any]) -> Any:
        begun, drawn = len(self._begun) + 1, self._backend.random_state()
        self._begun.append(key)
        result = run()
        if drawn == self._backend.random_state():
            self._known[key] = _Known(result, range(begun, len(self._begun)), self._versions(result))
        return result

    def _versions(self, value: Any) -> list[int]:
        return [self._backend.version(tensor) for tensor in take_apart(value, self._backend.is_tensor)[0]]
