"""What the names in the user's own functions stand for while a part of a case runs."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

import numpy as np

from twinalign.replay.code_lines import Function, Print, function_of_code, is_own_code, tracing

_SAMPLES = 16
_MOST_CALLS = 4
"""Of a function, whose names may have other values in each; and so many plain numbers may a name be in its loops."""
_MOST_LINES = 400
"""Of a function, for the numbers in its loops."""
_OF_LAYERS = "_parameters", "_buffers"
"""Attributes that hold the tensors of a layer of either framework."""
Values = dict[str, list[Print]]
"""Name, or attribute of an object as `self.name`, or entry as `name['key']` → what it was at the end of each of the
first calls, and plain numbers before that as well; a parameter or buffer of a layer, at the beginning."""


def values_in(run: Callable[[], Any], functions: dict[CodeType, Function] | None = None) -> dict[CodeType, Values]:
    """The values in the user's functions that `run` calls, by their code; none where a debugger looks on.

    `functions`: where these functions are put.
    """
    found: dict[CodeType, Values] = {}
    calls, lines = Counter[CodeType](), Counter[CodeType]()

    def note(code: CodeType, named: Iterable[tuple[str, Any]]) -> None:
        known = found.setdefault(code, {})
        for name, value in (pair for one in named for pair in _with_entries(*one)):
            if (made := _print(value)) is not None and made not in known.setdefault(name, []):
                known[name].append(made)

    def note_numbers(frame: FrameType) -> None:
        lines[frame.f_code] += 1
        frame.f_trace_lines = lines[frame.f_code] < _MOST_LINES
        numbers = [(name, value) for name, value in frame.f_locals.items() if type(value) in (int, float)]
        known = found.get(frame.f_code, {})
        note(frame.f_code, (one for one in numbers if len(known.get(one[0], ())) < _MOST_CALLS))

    def at_end(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if event == "line":
            note_numbers(frame)
        if event == "return" and calls[code] < _MOST_CALLS:
            calls[code] += 1
            held = getattr(frame.f_locals.get("self"), "__dict__", {})
            attributes = ((f"self.{one}", held[one]) for one in held if not one.startswith("_"))
            note(code, (*frame.f_locals.items(), *attributes))
        return at_end

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        if not is_own_code(frame):
            return None
        if functions is not None and frame.f_code not in functions:
            functions[frame.f_code] = function_of_code(frame.f_code, frame.f_globals)
        frame.f_trace_lines = lines[frame.f_code] < _MOST_LINES
        if calls[frame.f_code] < _MOST_CALLS:
            held = getattr(frame.f_locals.get("self"), "__dict__", {})
            tensors = (held[name] for name in _OF_LAYERS if isinstance(held.get(name), dict))
            note(frame.f_code, [(f"self.{name}", value) for one in tensors for name, value in one.items()])
        return at_end

    with contextlib.nullcontext() if sys.gettrace() is not None else tracing(enter):
        run()
    return found


def _with_entries(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A name with its value, and each entry of a dictionary as `name['key']`."""
    yield name, value
    if type(value) is dict and len(value) <= _SAMPLES:
        yield from ((f"{name}[{key!r}]", one) for key, one in value.items() if isinstance(key, str))


def array_of(value: Any) -> np.ndarray | None:
    """A number, an array or a framework's tensor as an array of numbers, not copied; None for anything else."""
    if isinstance(value, (bool, int, float, np.generic)):
        array = np.asarray(value)
    elif isinstance(value, np.ndarray):
        array = value
    elif type(value).__module__.partition(".")[0] in ("paddle", "torch") and hasattr(value, "detach"):
        try:
            array = value.detach().cpu().numpy()
        except Exception:  # a tensor without values, or of a type that numpy lacks
            return None
    else:
        return None
    return array if array.dtype.kind in "fiub" and array.size else None


def _print(value: Any) -> Print | None:
    """Shape and sample of what `array_of` makes an array of, or of a list of such things; None for anything else."""
    if isinstance(value, (list, tuple)):
        items = [array_of(one) for one in value[: _SAMPLES + 1]]
        middles = [float(one.flat[one.size // 2]) for one in items if one is not None]
        found = np.where(np.isfinite(middles), middles, 0.0).tolist()[:_SAMPLES]
        return ((len(value),), found) if len(middles) == len(items) > 0 else None
    if (array := array_of(value)) is None:
        return None
    chosen = array.flat[:: max(1, array.size // _SAMPLES)][:_SAMPLES].astype(np.float64)  # without a copy of the whole
    return array.shape, np.where(np.isfinite(chosen), chosen, 0.0).tolist()
