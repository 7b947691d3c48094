"""What code between layers computes, line by line: the trace in which a fault of such code is narrowed down.

The port's forced pass keeps a sample of every tensor that a line of its own code binds or changes. Where the code turns
out to be wrong, the reference runs its partner again with every function call seen, and what the port's lines made is
looked up among the results: by shape and sample, since both have been given the same inputs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from twinalign.locate.measuring import sample_of

_FRAMEWORKS = frozenset({"torch", "paddle", "numpy", "twinalign"})
_OWN_THOUGH = "paddle.vision.models"
_STANDARD_LIBRARY = str(Path(linecache.__file__).parent)
_SAMPLES = 1024
_SAME = 1e-9
"""Two float64 computations from the same inputs agree to this share of the greatest value."""
LONGEST_SOURCE = 100

Print = tuple[tuple[int, ...], list[float]]
"""Shape and sample of an array, by which the same values are recognised on the other side."""


def print_of(array: np.ndarray) -> Print:
    """Of a floating-point array."""
    return array.shape, sample_of(array, _SAMPLES)


@dataclasses.dataclass(frozen=True)
class Step:
    """A tensor that a line of code has bound to a name, changed, or returned (`name` is then empty)."""

    name: str
    file: str
    line: int
    source: str
    print: Print

    def to_json(self) -> dict[str, Any]:
        """As plain containers."""
        return dataclasses.asdict(self)


class OwnCode:
    """Follows the lines of code that is no framework's, and notes their tensors in the list that `steps` names."""

    def __init__(self, backend: ModuleType, steps: Callable[[], list[Step] | None]) -> None:
        """`steps` returns where to note what the line that has just run made, None for nowhere."""
        self._backend, self._steps = backend, steps
        self.is_tensor = backend.is_tensor

    def state_of(self, tensor: Any) -> tuple[int, int]:
        """Another one where a name has come to mean another tensor, or the tensor other values."""
        return id(tensor), self._backend.version(tensor)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Follow what runs inside the block; not where a debugger or a coverage tool follows it already."""
        if sys.gettrace() is not None:
            yield
            return
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)

    @staticmethod
    @contextlib.contextmanager
    def unfollowed() -> Iterator[None]:
        """Follow nothing that is called inside the block."""
        before = sys.gettrace()
        sys.settrace(None)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not is_own_code(frame):
            return None
        return _Frame(self, frame)

    def note(self, name: str, frame: FrameType, line: int, tensor: Any) -> None:
        """Keep what a line has made."""
        steps = self._steps()
        array = self._backend.values_of(tensor)
        if steps is None or array.dtype.kind != "f":
            return
        file = frame.f_code.co_filename
        source = linecache.getline(file, line).strip()[:LONGEST_SOURCE]
        steps.append(Step(name, Path(file).name, line, source, print_of(array)))


class _Frame:
    """Follows one frame. Not a nested function: one that returns itself is a cycle, which would keep the whole pass."""

    def __init__(self, code: OwnCode, frame: FrameType) -> None:
        self._code, self._line = code, frame.f_lineno
        self._known = {name: code.state_of(value) for name, value in frame.f_locals.items() if code.is_tensor(value)}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> _Frame:
        code = self._code
        if event not in ("line", "return"):
            return self
        for name, value in frame.f_locals.items():
            if code.is_tensor(value) and self._known.get(name) != (state := code.state_of(value)):
                self._known[name] = state
                code.note(name, frame, self._line, value)
        self._line = frame.f_lineno
        if event == "return":
            for value in _members(argument):
                if code.is_tensor(value):
                    code.note("", frame, self._line, value)
        return self


def is_own_code(frame: FrameType) -> bool:
    """Whether a frame runs neither a framework nor the standard library."""
    module, file = str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename
    if module.partition(".")[0] in _FRAMEWORKS:
        return module.startswith(_OWN_THOUGH)
    return "site-packages" in file or not file.startswith(("<", _STANDARD_LIBRARY))


def _members(returned: Any) -> list[Any]:
    if isinstance(returned, dict):
        return list(returned.values())
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def narrowed_down(steps: Sequence[Mapping[str, Any]], results: Sequence[Print]) -> dict[str, Any] | None:
    """The first step whose values are nowhere among `results`, and the last before it whose values are, if any.

    A step is looked at only where there is a result of its shape: other layouts are no faults.
    """
    samples: dict[tuple[int, ...], list[np.ndarray]] = {}
    for shape, sample in results:
        samples.setdefault(tuple(shape), []).append(np.array(sample))
    last = None
    for step in steps:
        shape, sample = step["print"]
        comparable = samples.get(tuple(shape), [])
        if any(_is_same(np.array(sample), theirs) for theirs in comparable):
            last = step
        elif comparable:
            return {"unknown": _shown(step), "known": _shown(last) if last is not None else None}
    return None


def _is_same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    scale = max(np.abs(ours).max(initial=0.0), np.abs(theirs).max(initial=0.0))
    return bool(np.abs(ours - theirs).max(initial=0.0) <= _SAME * scale)


def _shown(step: Mapping[str, Any]) -> dict[str, Any]:
    return {name: step[name] for name in ("name", "file", "line", "source")}
