"""The lines of a constructor that make a table or a mask, on both sides."""

import ast
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code, Difference, differences, line_of, parsed
from twinalign.replay.code_text import shortened
from twinalign.replay.constants import exchanged

_MOST = 2
Place = tuple[str, int, int]


def constructor_of(layer: Any) -> dict[str, Any]:
    """The source of a layer's constructor, with its file and first line; nothing where there is none to read."""
    try:
        function = inspect.unwrap(type(layer).__init__)
        lines, first = inspect.getsourcelines(function)
        file = Path(inspect.getsourcefile(function) or "").name
    except (OSError, TypeError):
        return {}
    return {"source": "".join(lines), "file": file, "line": first, "name": function.__qualname__}


def made_in(names: Sequence[str], port: Mapping[str, Any], layer: Any) -> tuple[str, tuple[Place, ...]]:
    """Words for the port's lines that make attributes, beside the reference's, and the places of these lines.

    Args:
        port: what `constructor_of` returned for the port's layer.
        layer: the reference's.
    """
    ours, theirs = (_code(one, side) for one, side in ((port, "paddle"), (constructor_of(layer), "torch")))
    if ours is None:
        return "", ()
    makers = _makers(ours.tree, set(names))
    if not makers:
        return "", ()
    lines = {number for one in makers for number in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    apart = [] if theirs is None else [one for one in differences(theirs, ours) if _stands_in(one, lines)]
    # Of lines that are only spelled otherwise and one with another number, that one is why.
    apart = [one for one in apart if exchanged([one.new], [one.old])] or apart
    if apart:
        places = tuple(place for one in apart[:_MOST] for place in one.lines_of_port)
        return "; ".join(one.text for one in apart[:_MOST]), places
    last = makers[-1]
    return f"made by `{shortened(last)}`, {line_of(ours, last)}", ((ours.file, last.lineno, last.end_lineno or 0),)


def values_of_port(backend: Any, module: Any, port: Mapping[str, np.ndarray]) -> dict[str, tuple[str, Any]]:
    """Tensors that a layer of the port does not store, by name: the reference's name of each, and the port's values.

    Where the reference has none of the name it is the one of its shape that the port has not. Equal ones are left out.
    """
    held = {**vars(module), **backend.own_buffers(module)}
    found = {}
    for name, array in port.items():
        of_shape = [one for one, own in held.items() if backend.is_tensor(own) and tuple(own.shape) == array.shape]
        names = [name] if name in of_shape else [one for one in of_shape if one not in port]
        own: Any = held[names[0]] if len(names) == 1 else None
        if own is not None and not np.array_equal(backend.to_array(own), array, equal_nan=array.dtype.kind == "f"):
            found[name] = names[0], backend.to_tensor_like(array, own)
    return found


def _code(found: Mapping[str, Any], side: str) -> Code | None:
    return parsed(found["source"], found["file"], found["line"], found["name"], side) if found else None


def _stands_in(one: Difference, lines: set[int]) -> bool:
    places = one.lines_of_port
    return bool(places) and one.old is not None and not one.has_same_words and places[0][1] in lines


def _makers(tree: ast.FunctionDef, names: set[str]) -> list[ast.stmt]:
    """The statements that these attributes come of, in their order."""
    found, wanted = list[ast.stmt](), set(names)
    for statement in reversed(_statements(tree.body)):
        if _made(statement) & wanted:
            found.append(statement)
            wanted |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)} - {"self"}
    return found[::-1]


def _statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements, and those inside of loops and conditions."""
    found: list[ast.stmt] = []
    for one in body:
        inside = [*getattr(one, "body", ()), *getattr(one, "orelse", ())]
        found += _statements(inside) if inside and not isinstance(one, ast.FunctionDef) else [one]
    return found


def _made(statement: ast.stmt) -> set[str]:
    """Names and attributes that a statement gives a value, a part of one, or a buffer's."""
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    found = set[str]()
    for node in (inner for target in targets if target is not None for inner in ast.walk(target)):
        if isinstance(node, ast.Name) and node.id != "self":
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr.lstrip("_"))
            found.add(node.attr)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        if isinstance(call.func.value, ast.Name):  # a method that changes a tensor in place
            found.add(call.func.value.id)
        given = call.args[0] if call.args else None
        if call.func.attr == "register_buffer" and isinstance(given, ast.Constant):
            found.add(str(given.value))
    return found - {"self"}
