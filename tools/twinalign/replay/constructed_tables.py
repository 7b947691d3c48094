"""Tensors that a constructor makes and nothing stores: a layer with the port's values, and the lines that make them."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.replay.aligned_code import Code, Difference, Helpers, line_of, parsed
from twinalign.replay.code_lines import FRAMEWORKS
from twinalign.replay.port_lines import LinesVariant


def constructors_of(layer: Any) -> list[dict[str, Any]]:
    """The text of the constructors of a layer's own classes, the nearest first, with file, line and name."""
    found = []
    for kind in type(layer).__mro__:
        made = vars(kind).get("__init__")
        if made is None or kind.__module__.partition(".")[0] in FRAMEWORKS:
            continue
        try:
            lines, first = inspect.getsourcelines(made)
            file = Path(inspect.getfile(made)).name
        except (OSError, TypeError):  # made without a file
            continue
        found.append(
            {"source": textwrap.dedent("".join(lines)), "file": file, "line": first, "name": made.__qualname__}
        )
    return found


def other_tables(module: Any, unit: Any) -> Iterator[LinesVariant]:
    """The reference's layer with the port's values of each of the unit's tables, and of all of them."""
    tables: Mapping[str, Any] = getattr(unit, "tables", dict)()
    constructors: Sequence[Mapping[str, Any]] = getattr(unit, "constructors", ())
    lines = {name: _line(module, constructors, name) for name in tables}
    for names in [[name] for name in tables] + [list(tables)] * (len(tables) > 1):
        found = {name: line for name in names if (line := lines[name]) is not None}
        said = [_said(name, line) for name, line in found.items()]
        if unknown := [name for name in names if name not in found]:
            have, them = ("has", "it") if len(unknown) == 1 else ("have", "them")
            quoted = "`, `".join(unknown)
            said.append(f"`{quoted}` {have} other values; the constructor makes {them}, and no weights hold {them}")
        values = tuple((name, tables[name]) for name in names)
        made = tuple(found.values())
        yield LinesVariant("; ".join(said), (), module, {}, Helpers({}, ()), values, constructed=made)


def _said(name: str, line: Difference) -> str:
    if not line.has_same_words:
        return f"`{name}` has other values: {line.text}"
    ours, theirs = line_of(line.ours, line.new), line_of(line.theirs, line.old)
    return f"`{name}` has other values, which {ours} makes, in the reference {theirs}"


def _line(module: Any, constructors: Sequence[Mapping[str, Any]], name: str) -> Difference | None:
    """What both constructors write for a table; None where one of them does not make it in a line of its own."""
    ours, theirs = _made_in(constructors, name, "paddle"), _made_in(constructors_of(module), name, "torch")
    if ours is None or theirs is None:
        return None
    return Difference(theirs[0], ours[0], (id(theirs[1]), "instead"), theirs[1], ours[1])


def _made_in(constructors: Sequence[Mapping[str, Any]], name: str, side: str) -> tuple[Code, ast.expr] | None:
    for one in constructors:
        code = parsed(one["source"], one["file"], one["line"], one["name"], side)
        value = _value_of(code.tree, f"self.{name}") if code is not None else None
        if code is not None and value is not None:
            return code, value
    return None


def _value_of(tree: ast.FunctionDef, target: str, before: float = float("inf")) -> ast.expr | None:
    """What is assigned to a name last, ahead of a line; where that is another name, what is assigned to this."""
    found = None
    for node in ast.walk(tree):
        value = _assigned(node, target)
        if value is not None and value.lineno < before and (found is None or value.lineno > found.lineno):
            found = value
    if isinstance(found, ast.Name):
        return _value_of(tree, found.id, found.lineno) or found
    return found


def _assigned(node: ast.AST, target: str) -> ast.expr | None:
    if isinstance(node, ast.Assign) and any(ast.unparse(one) == target for one in node.targets):
        return node.value
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == target:
        return node.value
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.register_buffer" and len(node.args) > 1:
        first = node.args[0]
        return node.args[1] if isinstance(first, ast.Constant) and f"self.{first.value!s}" == target else None
    return None
