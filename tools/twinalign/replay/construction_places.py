"""Where the source makes layers, loss, optimizer, schedule, data, metric and training; runs in a side's process."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

from twinalign.case.definition import Case
from twinalign.case.samples import first_samples
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.processes.tracebacks import is_users_file
from twinalign.replay import metric
from twinalign.replay.code_lines import FRAMEWORKS, is_own_code
from twinalign.stages.context import step_inputs
from twinalign.stages.watching import run_training

_MOST_FRAMES = 4
_FEW = 2
"""Samples, and steps of a schedule or training, that are taken to see whose code runs."""
OUTSIDE_FUNCTIONS = 0
"""In place of a line: what stands in no function of a file."""
_COMPONENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "loss": ("loss", ("loss",)),
    "optimizer": ("backward", ("optimizer",)),
    "schedule": ("backward", ("schedule", "optimizer")),
    "dataset": ("data", ("dataset", "preprocessing")),
    "metric": ("metric", ("metric", "evaluate")),
    "train": ("train", ("train",)),
}
"""Component -> its stage, and the methods of the case that are its code; what they call is looked for as well."""


def port_places(worker: Any, stage: str, paths: Sequence[str], functions: Sequence[str]) -> dict[str, Any]:
    """What the edits of a port need to know of its source.

    Args:
        stage: whose model is built once more, with an eye on who builds its layers.
        paths: of the port's layers, and components: `loss`, `optimizer`, `schedule`, `dataset.SPLIT`, `metric` and
            `train`.
        functions: paths in paddle of functions and classes whose parameters are wanted.

    Returns:
        `layers`: path -> `class` (its path in paddle or elsewhere), `calls` (each `[file, line, column, end line, end
        column]`, lines from 1, columns in bytes from 0, the innermost first), `elsewhere` (what of the code of the
        training runs in other components as well, which are none of these paths), `others` (for each of them the other
        layers of the class that it builds), `code` (`[file, first line, last
        line]` of its own methods and the functions that they call), `constructor` (the same of its own) and `around`
        (of the constructors that build it, its own first, and of what stands outside functions, in line
        `OUTSIDE_FUNCTIONS`); `parameters`: function -> the names of its parameters in order, keyword-only ones last;
        `case`: where the case's method `reproduced` stands, in that form; `rules`: the user's own files of storage
        rules.
    """
    from twinalign.backends.paddle.port_only.construction import function_named, layers_built

    case = worker.fresh_case(stage)
    calls: dict[int, list[list[Any]]] = {}

    def note(layer: Any, frame: FrameType) -> None:
        calls.setdefault(id(layer), _calls(frame))

    named: dict[str, Any] = {}
    if not all(is_component(path) for path in paths):
        with layers_built(note):
            model = worker.construct(case)
        named = dict(worker.backend.named_layers(model))
    built: dict[Any, list[str]] = {}
    for path, layer in named.items():
        for call in calls.get(id(layer), []):
            built.setdefault((type(layer), *call), []).append(path)
    layers: dict[str, Any] = {}
    for path in paths:
        if path in named:
            kind, own_calls = type(named[path]), calls.get(id(named[path]), [])
            of_kind = {"class": f"{kind.__module__}.{kind.__qualname__}", "calls": own_calls}
            of_kind["others"] = [[one for one in built[kind, *call] if one != path] for call in own_calls]
        elif is_component(path):
            of_kind = {"class": "", "calls": []}
        else:
            continue
        layers[path] = of_kind | _code_places(worker, named, path, paths)
    return {
        "layers": layers,
        "parameters": {name: _parameters(function_named(name)) for name in functions},
        **case_places(worker),
    }


def _code_places(worker: Any, named: Mapping[str, Any], path: str, paths: Sequence[str]) -> dict[str, Any]:
    """`code`, `elsewhere`, `constructor` and `around` of a layer or component, as `port_places` returns them."""
    code = _spans(_code_of(worker, named, path), _is_editable)
    around = _spans(_code_around(named, path) if path in named else [], _is_editable)
    return {
        "code": code,
        "elsewhere": _spans(_code_elsewhere(worker, path, paths), _is_editable),
        "constructor": _spans(_constructors([type(named[path])]) if path in named else [], _is_editable),
        "around": [*around, *_outside(code + around)],
    }


def case_places(worker: Any) -> dict[str, Any]:
    """`case` and `rules` of `port_places`."""
    case = worker.case
    rules = [rule for rule in worker.rules() if _is_editable(rule)]
    return {"case": _spans([type(case).reproduced], _is_editable), "rules": rules}


def reference_code(worker: Any, stage: str, paths: Sequence[str]) -> dict[str, Any]:
    """Where the reference's code stands; runs in its process.

    Returns:
        path of a layer or component -> `[file, first line, last line]` of what `port_places` has as `code` and
        `around`, those of installed packages too: of a layer, what stands beside its class or one around it. A base
        class of a library, such as transformers', reaches hundreds of functions, which take minutes to read.
    """
    named: dict[str, Any] = {}
    if not all(is_component(path) for path in paths):
        named = dict(worker.backend.named_layers(worker.construct(worker.fresh_case(stage))))
    found = {}
    for path in paths:
        if path in named or is_component(path):
            around = _code_around(named, path) if path in named else []
            is_near = _beside(_kinds_around(named, path)) if path in named else os.path.isfile
            spans = _spans([*_code_of(worker, named, path), *around], is_near)
            found[path] = [*spans, *_outside(spans)]
    return found


def own_files(worker: Any) -> dict[str, Any]:
    """`files`: real paths of the user's own source files that this side has imported, once all of the case has run."""
    for component in _COMPONENTS:
        case = worker.fresh_case("forward")
        stage, methods = _COMPONENTS[component]
        if any(getattr(type(case.part(stage)), name) is not getattr(Case, name) for name in methods):
            splits = [f"dataset.{split}" for split in case.splits] if component == "dataset" else [component]
            for one in splits:
                _called(worker, worker.fresh_case(stage), one)
    worker.construct(worker.fresh_case("forward"))
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return {"files": sorted({os.path.realpath(file) for file in files if file and _is_editable(file)})}


def is_component(path: str) -> bool:
    """Whether a fault's place is a component of the case and no layer."""
    return path in _COMPONENTS or path.startswith("dataset.")


def _outside(spans: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [[file, OUTSIDE_FUNCTIONS, OUTSIDE_FUNCTIONS] for file in dict.fromkeys(span[0] for span in spans)]


def _code_of(worker: Any, named: Mapping[str, Any], path: str) -> list[Any]:
    """The functions that a layer computes with, or the case's methods of a component and what they call."""
    if path not in named:
        stage, methods = _COMPONENTS[path.partition(".")[0]]
        case = worker.fresh_case(stage)
        own = [getattr(type(case), name) for name in methods if getattr(type(case), name) is not getattr(Case, name)]
        return [*own, *_called(worker, case, path)]
    methods_of_layer = _methods(type(named[path]))
    return _with_helpers([value for value in methods_of_layer if value.__name__ != "__init__"])


def _code_elsewhere(worker: Any, path: str, wrong: Sequence[str]) -> list[Any]:
    """What the training shares with loss, schedule, metric and data, where these are not wrong."""
    kinds = {one.partition(".")[0] for one in wrong}
    others = [name for name in _COMPONENTS if path == "train" and name not in kinds]
    splits = [f"dataset.{split}" for split in worker.fresh_case("data").splits] if "dataset" in others else []
    return [one for name in (*others, *splits) if name != "dataset" for one in _code_of(worker, {}, name)]


def _code_around(named: Mapping[str, Any], path: str) -> list[Any]:
    """The constructors of a layer and of those around it, with the functions that they call."""
    return _constructors(_kinds_around(named, path))


def _kinds_around(named: Mapping[str, Any], path: str) -> list[type]:
    """The classes of a layer and of those around it."""
    around = [path.rsplit(".", up)[0] for up in range(path.count(".") + 1)] + [""]
    return [type(named[outer]) for outer in around if outer in named]


def _beside(kinds: Sequence[type]) -> Callable[[str], bool]:
    """Whether a file is the user's own, or stands in the folder of one of these classes."""
    files = [getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in kinds]
    folders = {os.path.dirname(file) for file in files if file}
    return lambda file: os.path.isfile(file) and (os.path.dirname(file) in folders or is_users_file(file))


def _constructors(kinds: Iterable[type]) -> list[Any]:
    """The constructors of classes, with the functions that they call."""
    of_kinds = [value for kind in dict.fromkeys(kinds) for value in _methods(kind) if value.__name__ == "__init__"]
    return _with_helpers(of_kinds)


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


def _called(worker: Any, case: Case, component: str) -> list[CodeType]:
    """The user's own functions that run in a component of the case, without those of layers."""
    found: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        in_layer = worker.backend.is_model(frame.f_locals.get("self"))
        if event == "call" and not in_layer and is_own_code(frame) and code.co_name.isidentifier():
            found[code] = None

    # A case that fails here keeps the code of its methods alone: the run has shown its own error already.
    with contextlib.suppress(Exception):
        run = _ready(worker, case, component)
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            run()
        finally:
            sys.setprofile(before)
    users = [code for code in found if is_users_file(code.co_filename)]
    return users or list(found)


def _ready(worker: Any, case: Case, component: str) -> Callable[[], Any]:
    """A function that runs a component of the case once, or for a few samples or steps."""
    backend, framework = worker.backend, worker.framework
    kind, _, split = component.partition(".")
    if kind == "dataset":

        def read() -> None:
            list(first_samples(case.dataset(framework, split), _FEW))
            for steps in case.preprocessing(framework, split, 0).values():
                functools.reduce(lambda value, step: step[1](value), steps, None)

        return read
    model = worker.construct(case)
    parameters = [p for p in backend.named_parameters(model).values() if backend.trainable(p)]
    if kind == "loss":
        given = step_inputs(case).items()
        inputs = {name: backend.to_tensor(array, "float32", worker.device) for name, array in given}
        outputs = case.forward(model, inputs, framework)
        return lambda: case.loss(outputs, inputs, framework)
    if kind == "metric":
        if type(case).evaluate is not Case.evaluate:
            return lambda: case.evaluate(model, framework, "float32")
        found = metric.outputs_and_labels(worker, case, model)
        return lambda: case.metric(*found, framework)
    if kind == "train":
        return lambda: run_training(case, framework, backend, model, CanonicalNames(), _FEW)

    def step() -> None:
        optimizer = case.optimizer(parameters, framework)
        for number in range(_FEW if kind == "schedule" else 0):
            case.schedule(optimizer, number, framework)
        optimizer.step()

    return step


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
