"""Where the port's source makes its layers, loss and optimizer; runs in the port's process."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

from twinalign.case.definition import Case
from twinalign.processes.tracebacks import is_users_file
from twinalign.replay.code_lines import is_own_code
from twinalign.stages.context import step_inputs

_MOST_FRAMES = 4


def port_places(worker: Any, stage: str, paths: Sequence[str], functions: Sequence[str]) -> dict[str, Any]:
    """What the edits of a port need to know of its source.

    Args:
        stage: whose model is built once more, with an eye on who builds its layers.
        paths: of the port's layers; `loss` and `optimizer` are methods of the case.
        functions: paths in paddle of functions and classes whose parameters are wanted.

    Returns:
        `layers`: path -> `class` (its path in paddle or elsewhere), `calls` (each `[file, line, column, end line, end
        column]`, lines from 1, columns in bytes from 0, the innermost first) and `code` (`[file, first line, last
        line]` of its own methods); `parameters`: function -> the names of its parameters in order,
        keyword-only ones last.
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
        if path in ("loss", "optimizer"):
            method = getattr(type(case), path)
            layers[path] = {"class": "", "calls": [], "code": _spans([method, *_called(worker, case, model, path)])}
        elif path in named:
            kind = type(named[path])
            methods = [value for value in vars(kind).values() if inspect.isfunction(value)]
            forward = [value for value in methods if value.__name__ != "__init__"]
            layers[path] = {
                "class": f"{kind.__module__}.{kind.__qualname__}",
                "calls": calls.get(id(named[path]), []),
                "code": _spans(forward),
            }
    return {"layers": layers, "parameters": {name: _parameters(function_named(name)) for name in functions}}


def _called(worker: Any, case: Case, model: Any, method: str) -> list[CodeType]:
    """The user's own functions that run in the case's `loss` or `optimizer`, without those of layers."""
    from twinalign.backends.paddle.port_only.construction import function_named

    found: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        in_layer = isinstance(frame.f_locals.get("self"), function_named("nn.Layer"))
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


def _spans(methods: Sequence[Callable[..., Any] | CodeType]) -> list[list[Any]]:
    found = []
    codes = [m if isinstance(m, CodeType) else getattr(inspect.unwrap(m), "__code__", None) for m in methods]
    for code in dict.fromkeys(codes):
        if code is None or not _is_editable(code.co_filename):
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
