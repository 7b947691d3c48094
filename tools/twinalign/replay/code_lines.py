"""Finds the line at which code between layers goes wrong.

The port's forced pass samples every tensor that a line of its own code assigns or changes. If the code is wrong, the
reference runs its own code again and keeps the result of every function call. Both had the same inputs, so the port's
samples are looked up among these results by shape and values.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Protocol

import numpy as np

from twinalign.backends.protocol import Backend
from twinalign.verdict.array_difference import sample_of

FRAMEWORKS = frozenset({"torch", "paddle", "numpy", "twinalign", "plain_pickles"})
_OWN_THOUGH = "paddle.vision.models"
_STANDARD_LIBRARY = str(Path(linecache.__file__).parent)
_EXTENDED = "LRScheduler", "ClipGradBase"
"""Classes of paddle's that ports extend, and whose part torch's process can take."""
_SAMPLES = 1024
_LONGEST_SOURCE, _LONGEST_LITERAL = 100, 1000

Print = tuple[tuple[int, ...], list[float]]
"""Shape and sample of an array, by which equal values are recognised on the other side."""


def print_of(array: np.ndarray) -> Print:
    """Shape and sample of a floating-point array."""
    return array.shape, sample_of(array, _SAMPLES)


@dataclasses.dataclass(frozen=True)
class Step:
    """A tensor that a line of code has assigned to a name, changed, or returned (`name` is then empty)."""

    name: str
    file: str
    line: int
    source: str
    print: Print


@dataclasses.dataclass(frozen=True)
class Function:
    """A function outside frameworks that has run.

    Attributes:
        file, line: name of its file, and the line in which it begins, decorators included.
        name: qualified name.
        source: its text.
        globals: names that it reads from its module, or from a function around it → what they are:
            `["name", "paddle.nn.functional"]` for a module or something that has its place in one, `["value", 0.5]` for
            a plain value, `["literal", "[1, 2]"]` for a list, tuple or dictionary of such.
        arguments: parameters that had the same plain value in all of its calls → that value.
        is_plain: whether it is a method of a class that extends no other, or of a layer that holds no tensor.
        extends: name of the class of paddle's that its class extends, if it is a schedule or a way to clip gradients.
        attributes: those of the object of a method that had plain values in its first call → that value.
        layers: those of the object of a method that hold no tensor and are no framework's → the name of their class,
            and their attributes that are plain values.
        of_arrays: whether it was given an array of numpy's in its first call, and no tensor.
        has_run: else others name it alone.
    """

    file: str
    line: int
    name: str
    source: str
    globals: dict[str, list[Any]]
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    is_plain: bool = False
    extends: str = ""
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    layers: dict[str, tuple[str, dict[str, Any]]] = dataclasses.field(default_factory=dict)
    of_arrays: bool = False
    has_run: bool = True

    def called_again(self, frame: FrameType) -> None:
        """Forget the arguments that are others in this call."""
        now = _plain_arguments(frame)
        for name in [name for name, value in self.arguments.items() if now.get(name, self) != value]:
            del self.arguments[name]


@contextlib.contextmanager
def tracing(function: Any) -> Iterator[None]:
    """Inside the block this function traces what is called; None: nothing is traced."""
    before = sys.gettrace()
    sys.settrace(function)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def noting(functions: dict[CodeType, Function], scopes: dict[CodeType, Any] | None = None) -> Iterator[None]:
    """Inside the block note the functions outside frameworks that run, unless a debugger looks on already.

    `scopes`: where their globals are put.
    """

    def enter(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code not in functions and is_own_code(frame):
            functions[frame.f_code] = function_of(frame)
            if scopes is not None:
                scopes[frame.f_code] = frame.f_globals

    with contextlib.nullcontext() if sys.gettrace() is not None else tracing(enter):
        yield


_WORD = re.compile(r"[A-Za-z_]\w*")


class Noted(Protocol):
    """Where steps and functions are noted; the functions by their code."""

    steps: list[Step]
    functions: dict[CodeType, Function]


class OwnCode:
    """Traces code outside frameworks and notes it with its tensors where `unit` says (None: nowhere)."""

    def __init__(self, backend: Backend, unit: Callable[[], Noted | None]) -> None:
        self._backend, self._unit = backend, unit
        self.is_tensor = backend.is_tensor

    def state_of(self, tensor: Any) -> tuple[int, int]:
        """Changes when the tensor is another one or has other values."""
        return id(tensor), self._backend.version(tensor)

    def followed(self) -> contextlib.AbstractContextManager[None]:
        """Trace what runs inside the block, unless a debugger or a coverage tool does already."""
        return tracing(self._enter) if sys.gettrace() is None else contextlib.nullcontext()

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not is_own_code(frame):
            return None
        if (unit := self._unit()) is not None:
            if frame.f_code in unit.functions:
                unit.functions[frame.f_code].called_again(frame)
            else:
                unit.functions[frame.f_code] = function_of(frame)
        return _Frame(self, frame)

    def note(self, name: str, frame: FrameType, line: int, tensor: Any) -> None:
        unit = self._unit()
        array = self._backend.values_of(tensor)
        if unit is None or array.dtype.kind != "f":
            return
        file = frame.f_code.co_filename
        unit.steps.append(Step(name, Path(file).name, line, source_line(file, line), print_of(array)))


def source_line(file: str, line: int) -> str:
    """A line of source for a message, cut off with … if it is long."""
    text = linecache.getline(file, line).strip()
    return text if len(text) <= _LONGEST_SOURCE else text[: _LONGEST_SOURCE - 1] + "…"


def line_within(outside: CodeType) -> str:
    """The innermost line of the user's code that runs inside this code, in words."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not outside:
        if is_own_code(frame):
            file, number = frame.f_code.co_filename, frame.f_lineno
            source = source_line(file, number)
            return f"line {number} of {Path(file).name}: {source}"
        frame = frame.f_back
    return ""


class _Frame:
    """Traces one frame. A nested function that returns itself would be a cycle, which keeps the pass in memory."""

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


def function_of(frame: FrameType) -> Function:
    """The function that runs in a frame; without a source that can be read its text is empty."""
    code = frame.f_code
    # A model that is defined inside a function may have its framework imported there.
    around = {name: frame.f_locals[name] for name in code.co_freevars if name in frame.f_locals}
    found = function_of_code(code, frame.f_globals, around)
    owner, words = frame.f_locals.get("self"), _words_of(code, found.source)
    own = {name: value for name, value in _plain_attributes(owner).items() if name in words}
    is_plain = owner is not None and (type(owner).__mro__[1:] == (object,) or _is_layer_without_tensors(owner))
    layers = {
        name: (type(layer).__qualname__, _plain_attributes(layer))
        for name, layer in _layers_of(owner).items()
        if type(layer).__module__.partition(".")[0] not in FRAMEWORKS and _is_layer_without_tensors(layer)
    }
    facts: dict[str, Any] = {
        "arguments": _plain_arguments(frame),
        "attributes": own,
        "layers": layers,
        "is_plain": is_plain,
    }
    return dataclasses.replace(found, **facts, extends=_extended(owner), of_arrays=_is_given_arrays(frame))


def _is_given_arrays(frame: FrameType) -> bool:
    given = [frame.f_locals.get(name) for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]]
    has_tensors = any(type(one).__module__.partition(".")[0] in ("torch", "paddle") for one in given)
    return any(isinstance(one, np.ndarray) for one in given) and not has_tensors


def _extended(owner: Any) -> str:
    bases = type(owner).__mro__[1:2]
    known = [base.__name__ for base in bases if base.__module__.startswith("paddle.") and base.__name__ in _EXTENDED]
    return known[0] if known else ""


def _plain_attributes(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in getattr(owner, "__dict__", {}).items() if _is_plain(value)}


def _layers_of(owner: Any) -> Mapping[str, Any]:
    """The layers that one of either framework holds, by name; none of what is no layer, or has none yet.

    Only looked up where frameworks keep them: what a user's class does when it is asked for an attribute runs no code.
    """
    held = getattr(owner, "__dict__", {}) if hasattr(type(owner), "named_children") else {}
    return held.get("_sub_layers") or held.get("_modules") or {}


def _is_layer_without_tensors(owner: Any) -> bool:
    held = getattr(owner, "__dict__", {})
    is_made = hasattr(type(owner), "named_children") and "_parameters" in held and "_buffers" in held
    if not is_made or held["_parameters"] or held["_buffers"]:
        return False
    return all(_is_layer_without_tensors(one) for one in _layers_of(owner).values() if one is not None)


def function_of_code(code: CodeType, scope: Mapping[str, Any], around: Mapping[str, Any] | None = None) -> Function:
    """A function as it stands in its file; `around`: what it reads of a function around it."""
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, dict(scope))[code.co_firstlineno - 1 :]
    try:
        source = "".join(inspect.getblock(lines)) if lines else ""
    except Exception:  # a text that is not that of the code
        source = ""
    read = {name: scope[name] for name in sorted(_words_of(code, source)) if name in scope} | dict(around or {})
    described = {name: found for name, value in read.items() if (found := _described(value)) is not None}
    return Function(Path(code.co_filename).name, code.co_firstlineno, code.co_qualname, source, described)


def _words_of(code: CodeType, source: str) -> set[str]:
    """Names that code reads; a default, or a comprehension inside, reads some that the code itself does not."""
    return {*code.co_names, *_WORD.findall(source)}


def _plain_arguments(frame: FrameType) -> dict[str, Any]:
    """Parameters that are given plain values in a call that begins, by name."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = {name: frame.f_locals.get(name, code) for name in names}
    return {name: value for name, value in given.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str, type(None)))


def _described(value: Any) -> list[Any] | None:
    if isinstance(value, ModuleType):
        return ["name", value.__name__]
    if isinstance(value, (bool, int, float, str)) and value == value:
        return ["value", value]
    if isinstance(value, (list, tuple, dict)) and len(text := repr(value)) < _LONGEST_LITERAL and _is_literal(text):
        return ["literal", text]
    place, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    return ["name", f"{place}.{name}"] if place and name else None


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def is_of_library(file: str | None) -> bool:
    """Whether a module with this file (None: it is built in) is installed or belongs to Python."""
    return file is None or "site-packages" in file or file.startswith(_STANDARD_LIBRARY)


def is_own_code(frame: FrameType) -> bool:
    """Whether a frame runs neither a framework nor the standard library."""
    return is_own_file(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename)


def is_own_file(module: str, file: str) -> bool:
    """Whether a module, by its name and file, is neither a framework's nor of a library that works with none."""
    package = module.partition(".")[0]
    if package in FRAMEWORKS:
        return module.startswith(_OWN_THOUGH)
    if "site-packages" in file:
        return _works_with_a_framework(package, len(sys.modules))
    return not file.startswith(("<", _STANDARD_LIBRARY))


@functools.lru_cache(1000)
def _works_with_a_framework(package: str, modules: int) -> bool:
    """Whether an installed package may be part of a model, while so many modules are imported: scipy, say, is not."""
    own = [module for name, module in list(sys.modules.items()) if f"{name}.".startswith(f"{package}.")]
    values = [value for module in own for value in list(getattr(module, "__dict__", {}).values())]
    places = [value.__name__ for value in values if type(value) is ModuleType]
    places += [str(value.__module__) for value in values if type(value) is type]
    return any(place.partition(".")[0] in ("torch", "paddle") for place in places)


def _members(returned: Any) -> list[Any]:
    if isinstance(returned, dict):
        return list(returned.values())
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]
