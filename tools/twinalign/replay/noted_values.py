"""What the names in the user's own functions stand for while a part of a case runs."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

from twinalign.replay.code_lines import Function, Print, function_of_code, is_own_code, tracing

_SAMPLES = 16
_MOST_CALLS = 4
"""Of a function, whose names may have other values in each."""
Values = dict[str, list[Print]]
"""Name, or attribute of an object as `self.name` → what it was at the end of each of the first calls."""

_KEPT: dict[CodeType, tuple[Function, Values]] = {}


def values_in(run: Callable[[], Any], functions: dict[CodeType, Function] | None = None) -> dict[CodeType, Values]:
    """The values in the user's functions that `run` calls, by their code; none where a debugger looks on.

    `functions`: where these functions are put.
    """
    found: dict[CodeType, Values] = {}
    calls = Counter[CodeType]()

    def at_end(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if event == "return" and calls[code] < _MOST_CALLS:
            calls[code] += 1
            held = getattr(frame.f_locals.get("self"), "__dict__", {})
            known = found.setdefault(code, {})
            attributes = ((f"self.{one}", held[one]) for one in held if not one.startswith("_"))
            for name, value in (*frame.f_locals.items(), *attributes):
                if (made := _print(value)) is not None and made not in known.setdefault(name, []):
                    known[name].append(made)
        return at_end

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        if not is_own_code(frame):
            return None
        if functions is not None and frame.f_code not in functions:
            functions[frame.f_code] = function_of_code(frame.f_code, frame.f_globals)
        frame.f_trace_lines = False
        return at_end

    with contextlib.nullcontext() if sys.gettrace() is not None else tracing(enter):
        run()
    return found


def keep_values(run: Callable[[], Any]) -> Any:
    """Run, return what that returns, and keep the values until `kept_values` is asked for them."""
    functions: dict[CodeType, Function] = {}
    returned: list[Any] = []
    found = values_in(lambda: returned.append(run()), functions)
    _KEPT.clear()
    _KEPT.update({code: (functions[code], values) for code, values in found.items()})
    return returned[0]


def kept_values(worker: Any) -> dict[str, Any]:
    """`functions`: each that ran in what was kept last, as `Function` in JSON, with its values."""
    return {"functions": [[dataclasses.asdict(function), values] for function, values in _KEPT.values()]}


def _print(value: Any) -> Print | None:
    """Shape and sample of a number, an array or a framework's tensor; None for anything else."""
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
    if array.dtype.kind not in "fiub" or not array.size:
        return None
    chosen = array.flat[:: max(1, array.size // _SAMPLES)][:_SAMPLES].astype(np.float64)  # without a copy of the whole
    return array.shape, np.where(np.isfinite(chosen), chosen, 0.0).tolist()
