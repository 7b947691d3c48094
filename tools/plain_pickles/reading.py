"""The tree in one pickle, once everything in it is read."""

from typing import Any

import numpy as np

from plain_pickles.errors import BrokenFileError, RefusedError
from plain_pickles.machine import MOST_STEPS, PickleMachine, Stateful, Symbol
from plain_pickles.symbols import NUMPY_SYMBOLS

_MAXIMUM_DEPTH = 100


def read_pickle(buffer: memoryview, most_steps: int = MOST_STEPS) -> Any:
    """The tree of arrays, texts and numbers in the pickle that fills `buffer`; `most_steps` as in `PickleMachine`.

    Raises:
        BrokenFileError: it is damaged.
        RefusedError: it asks for anything but data, or bytes follow it; nothing of it was run.
    """
    machine = PickleMachine(buffer, NUMPY_SYMBOLS, most_steps=most_steps)
    found = settle(machine.load())
    machine.require_end()
    return found


def settle(value: Any, depth: int = 0, seen: dict[int, Any] | None = None) -> Any:
    """Replace arrays under construction by arrays, in plain dictionaries, lists and tuples.

    Raises:
        BrokenFileError: nesting deeper than any checkpoint (a list may contain itself).
        RefusedError: a global stands where data should be, or two keys of one dictionary read alike.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    seen = {} if seen is None else seen
    if depth > _MAXIMUM_DEPTH:
        raise BrokenFileError(f"its data is nested more than {_MAXIMUM_DEPTH} deep")
    if id(value) in seen:
        return seen[id(value)]
    settled: Any = value
    if isinstance(value, Stateful):
        settled = value.finished()
        if not isinstance(settled, np.ndarray):
            settled = settle(settled, depth + 1, seen)
    elif isinstance(value, dict):
        settled = {key: settle(item, depth + 1, seen) for key, item in value.items()}
        if len({str(key) for key in settled}) != len(settled):
            raise RefusedError("its pickle has one key as a number and as text")
    elif isinstance(value, list):
        settled = [settle(item, depth + 1, seen) for item in value]
    elif isinstance(value, tuple):
        settled = tuple([settle(item, depth + 1, seen) for item in value])
    elif isinstance(value, Symbol):
        raise RefusedError(f"its pickle holds {value.name} itself where data should be")
    elif isinstance(value, memoryview):
        settled = bytes(value)
    seen[id(value)] = settled
    return settled
