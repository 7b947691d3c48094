"""Functions of the port that a component runs, and those that its code names.

Wrong code may never come to what the right code needs: boxes without a size are drawn by nothing.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from twinalign.replay.code_lines import Function, function_of_code, is_own_file, noting

Record = Callable[..., dict[str, Any]]
_NOTED = "functions"
_MOST_NAMED = 64
_WORD = re.compile(r"[A-Za-z_]\w*")


def noted(record: Record) -> Record:
    """Decorator of a function that records a component of the port: `port_functions` returns what ran there."""

    @functools.wraps(record)
    def recorded(worker: Any, **given: Any) -> dict[str, Any]:
        functions, scopes = dict[CodeType, Function](), dict[CodeType, Any]()
        with noting(functions, scopes) if worker.framework == "paddle" else contextlib.nullcontext():
            answer = record(worker, **given)
        worker.kept[_NOTED] = functions, scopes
        return answer

    return recorded


def unnoted(record: Record) -> Record:
    """The function without its decorator, for searches that call it hundreds of times: to note takes a fourth of it."""
    return inspect.unwrap(record)


def port_functions(worker: Any) -> dict[str, Any]:
    """`functions`: the port's own of the component that was recorded last, as `Function` in JSON."""
    ran, scopes = worker.kept.pop(_NOTED, ({}, {}))
    found = [*ran.values(), *named_functions(ran, scopes)]
    return {"functions": [dataclasses.asdict(one) for one in found if one.source]}


def named_functions(ran: Mapping[CodeType, Function], scopes: Mapping[CodeType, Any]) -> list[Function]:
    """The port's own functions that others name in their source, and that have not run.

    Args:
        ran: those that have.
        scopes: the globals of each.
    """
    waiting = [(text.source, scopes[code]) for code, text in ran.items() if code in scopes]
    found: dict[CodeType, Function] = {}
    while waiting and len(found) < _MOST_NAMED:
        for function in _named(*waiting.pop(0)):
            code = function.__code__
            if code not in ran and code not in found:
                described = function_of_code(code, function.__globals__)
                found[code] = dataclasses.replace(described, has_run=False)
                waiting.append((found[code].source, function.__globals__))
    return list(found.values())


def _named(source: str, scope: Mapping[str, Any]) -> Iterator[FunctionType]:
    words = list(dict.fromkeys(_WORD.findall(source)))
    values = [scope[word] for word in words if word in scope]
    modules = [value for value in values if isinstance(value, ModuleType)]
    own = [one for one in modules if is_own_file(one.__name__, getattr(one, "__file__", None) or "<")]
    values += [vars(module)[word] for module in own for word in words if word in vars(module)]
    for value in values:
        function = getattr(value, "__wrapped__", value)  # of what `no_grad` decorates
        if isinstance(function, FunctionType):
            module = str(function.__globals__.get("__name__", ""))
            if is_own_file(module, function.__code__.co_filename):
                yield function
