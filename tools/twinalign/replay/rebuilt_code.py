"""Functions of the reference rebuilt with other code in some places, and run in place of their own."""

import ast
import contextlib
import copy
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from twinalign.case.loading import kept_modules
from twinalign.replay.aligned_code import Code, Place

_RUNNING: dict[Any, list[tuple[Any, Any]]] = {}
"""Function → its own code and defaults, and those that run in their place; the last one does."""


@contextlib.contextmanager
def running(function: Any, made: Any) -> Iterator[None]:
    """Inside the block a function runs the code of another; blocks may end in any order: units call each other."""
    layers, own = _RUNNING.setdefault(function, [_code(function)]), _code(made)
    layers.append(own)
    function.__code__, function.__defaults__ = own
    try:
        yield
    finally:
        layers[:] = [one for one in layers if one is not own]
        function.__code__, function.__defaults__ = layers[-1]
        if len(layers) == 1:
            del _RUNNING[function]


@contextlib.contextmanager
def editing_port() -> Iterator[None]:
    """Inside the block functions of the port may be edited: what that changes in modules is undone at its end, and an
    index beyond a tensor, which may end paddle's process, raises."""
    from twinalign.backends.paddle.port_only.indices import checked_indices

    with kept_modules(), checked_indices():
        yield


def _code(function: Any) -> tuple[Any, Any]:
    return function.__code__, function.__defaults__


def compiled(code: Code, changes: Mapping[Place, ast.AST | None]) -> FunctionType:
    """The reference's function with something else in some places, closed over the same names."""
    tree = _rebuilt(code.tree, changes)
    tree.name = "changed"
    function = code.functions[0]
    free = function.__code__.co_freevars
    outer = ast.parse("def outer():\n    pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    closed = [ast.parse(f"{name} = None").body[0] for name in free]
    if free:  # code takes another's place only with as many of these names, of which a line may read fewer
        tree.body = [*ast.parse(f"if False:\n    {', '.join(free)}").body, *tree.body]
    outer.body = [*closed, tree, ast.Return(ast.Name("changed", ast.Load()))]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    found: dict[str, Any] = {}
    # What runs here is the user's own code: the reference's, with lines of the port.
    exec(compile(module, function.__code__.co_filename, "exec"), function.__globals__, found)
    made: FunctionType = found["outer"]()
    return made


def _rebuilt(node: Any, changes: Mapping[Place, ast.AST | None]) -> Any:
    """A tree with something else in some places; the given one stays as it is."""
    made = copy.copy(node)
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            setattr(made, field, _exchanged(value, changes))
        elif isinstance(value, list):
            items: list[Any] = []
            for item in value:
                if not isinstance(item, ast.AST):
                    items.append(item)
                    continue
                items += _statements(changes.get((id(item), "before")))
                if (id(item), "instead") in changes and isinstance(item, ast.stmt):
                    items += _statements(changes[id(item), "instead"])
                elif (id(item), "opened") in changes:
                    items += _rebuilt(item, changes).body
                else:
                    items.append(_exchanged(item, changes))
            if field == "body":
                items += _statements(changes.get((id(node), "behind")))
            setattr(made, field, items or ([ast.Pass()] if field == "body" else []))
    return made


def _exchanged(node: ast.AST, changes: Mapping[Place, ast.AST | None]) -> Any:
    return changes[id(node), "instead"] if (id(node), "instead") in changes else _rebuilt(node, changes)


def _statements(new: ast.AST | None) -> list[ast.AST]:
    return [] if new is None else list(new.body) if isinstance(new, ast.Module) else [new]
