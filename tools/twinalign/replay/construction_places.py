"""Where the port's source makes its layers, loss and optimizer; runs in the port's process."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

from twinalign.case.definition import Case
from twinalign.processes.tracebacks import is_users_file
from twinalign.replay.code_lines import FRAMEWORKS, is_own_code
from twinalign.stages.context import step_inputs

_MOST_FRAMES = 4
_METHODS = ("loss", "optimizer")
"""Of the case; their code is looked for as that of layers is."""


def port_places(worker: Any, stage: str, paths: Sequence[str], functions: Sequence[str]) -> dict[str, Any]:
    """What the edits of a port need to know of its source.

    Args:
        stage: whose model is built once more, with an eye on who builds its layers.
        paths: of the port's layers; `loss` and `optimizer` are methods of the case.
        functions: paths in paddle of functions and classes whose parameters are wanted.

    Returns:
        `layers`: path -> `class` (its path in paddle or elsewhere), `calls` (each `[file, line, column, end line, end
        column]`, lines from 1, columns in bytes from 0, the innermost first), `code` (`[file, first line, last
        line]` of its own methods and the functions that they call) and `around` (the same of the constructors that
        build it, its own first); `parameters`: function -> the names of its parameters in order, keyword-only ones
        last.
    """
    from twinalign.backends.paddle.port_only.construction import function_named, layers_built

    case = worker.fresh_case(stage)
    calls: dict[int, list[list[Any]]] = {}

    def note(layer: Any, frame: FrameType) -> None:
        calls.setdefault(id(layer), _calls(frame))

    with layers_built(note):
        model = worker.construct(case)
    named = dict(worker.backend.named_layers(model))
    layers: dict[str, Any] = {}
    for path in paths:
        kind = type(named.get(path))
        if path in named or path in _METHODS:
            layers[path] = {
                "class": f"{kind.__module__}.{kind.__qualname__}" if path in named else "",
                "calls": calls.get(id(named[path]), []) if path in named else [],
                "code": _spans(_code_of(worker, case, model, named, path), _is_editable),
                "around": _spans(_code_around(named, path), _is_editable),
            }
    return {"layers": layers, "parameters": {name: _parameters(function_named(name)) for name in functions}}


def reference_code(worker: Any, stage: str, paths: Sequence[str]) -> dict[str, Any]:
    """Where the reference's code stands; runs in its process.

    Returns:
        path of a layer, `loss` or `optimizer` -> `[file, first line, last line]` of what `port_places` has as `code`
        and `around`, those of installed packages too.
    """
    case = worker.fresh_case(stage)
    model = worker.construct(case)
    named = dict(worker.backend.named_layers(model))
    known = [path for path in paths if path in named or path in _METHODS]
    of_source = {path: [*_code_of(worker, case, model, named, path), *_code_around(named, path)] for path in known}
    return {path: _spans(codes, os.path.isfile) for path, codes in of_source.items()}


def _code_of(worker: Any, case: Case, model: Any, named: Mapping[str, Any], path: str) -> list[Any]:
    """The functions that a layer computes with, or a method of the case and what it calls."""
    if path in _METHODS and path not in named:
        return [getattr(type(case), path), *_called(worker, case, model, path)]
    methods = _methods(type(named[path]))
    return _with_helpers([value for value in methods if value.__name__ != "__init__"])


def _code_around(named: Mapping[str, Any], path: str) -> list[Any]:
    """The constructors of a layer and of those around it, with the functions that they call."""
    around = [path.rsplit(".", up)[0] for up in range(path.count(".") + 1)] + [""]
    kinds = dict.fromkeys(type(named[outer]) for outer in around if outer in named)
    return _with_helpers([value for kind in kinds for value in _methods(kind) if value.__name__ == "__init__"])


def _methods(kind: type) -> list[Any]:
    """A class's functions and those that it inherits, without what frameworks and Python bring."""
    own = [one for one in kind.__mro__ if one.__module__.partition(".")[0] not in (*FRAMEWORKS, "builtins")]
    return [value for one in own for value in vars(one).values() if inspect.isfunction(value)]


def _with_helpers(functions: Sequence[Any]) -> list[Any]:
    """Functions and those that they name, of the same module or imported into it, without what frameworks bring."""
    found = dict.fromkeys(map(inspect.unwrap, functions))
    waiting = list(found)
    while waiting:
        function = waiting.pop(0)
        known = getattr(function, "__globals__", {})
        for name in function.__code__.co_names:
            helper = inspect.unwrap(known[name]) if inspect.isfunction(known.get(name)) else None
            if helper is not None and helper not in found and helper.__module__.partition(".")[0] not in FRAMEWORKS:
                found[helper] = None
                waiting.append(helper)
    return list(found)


def _called(worker: Any, case: Case, model: Any, method: str) -> list[CodeType]:
    """The user's own functions that run in the case's `loss` or `optimizer`, without those of layers."""
    found: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        in_layer = worker.backend.is_model(frame.f_locals.get("self"))
        if event == "call" and not in_layer and is_own_code(frame) and code.co_name.isidentifier():
            found[code] = None

    outputs, inputs = None, {}
    # A case that fails here keeps the code of its method alone: the run has shown its own error already.
    with contextlib.suppress(Exception):
        if method == "loss":
            given = step_inputs(case).items()
            inputs = {name: worker.backend.to_tensor(array, "float32", worker.device) for name, array in given}
            outputs = case.forward(model, inputs, worker.framework)
        parameters = [p for p in worker.backend.named_parameters(model).values() if worker.backend.trainable(p)]
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            if method == "loss":
                case.loss(outputs, inputs, worker.framework)
            else:
                case.optimizer(parameters, worker.framework)
        finally:
            sys.setprofile(before)
    return list(found)


def _calls(frame: FrameType | None) -> list[list[Any]]:
    found: list[list[Any]] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        if is_own_code(frame) and _is_editable(frame.f_code.co_filename):
            positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
            line, end_line, column, end_column = positions
            if None not in positions:
                found.append([frame.f_code.co_filename, line, column, end_line, end_column])
        frame = frame.f_back
    return found


def _is_editable(file: str) -> bool:
    """Whether a file is the user's own source; what is installed is never edited, nor is twinalign."""
    return file.endswith(".py") and is_users_file(file)


def _spans(methods: Sequence[Callable[..., Any] | CodeType], is_wanted: Callable[[str], bool]) -> list[list[Any]]:
    found = []
    codes = [m if isinstance(m, CodeType) else getattr(inspect.unwrap(m), "__code__", None) for m in methods]
    for code in dict.fromkeys(codes):
        if code is None or not is_wanted(code.co_filename):
            continue
        lines = [line for _, _, line in code.co_lines() if line is not None]
        found.append([code.co_filename, code.co_firstlineno, max(lines, default=code.co_firstlineno)])
    return found


def _parameters(function: Any) -> list[str]:
    try:
        given: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [name for name, parameter in given.items() if parameter.kind in named]
