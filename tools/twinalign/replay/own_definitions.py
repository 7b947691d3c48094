"""The port's own functions and plain classes, defined in the reference's process for lines that name them."""

import ast
import dataclasses
import weakref
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

from twinalign.replay.aligned_code import Code, last_part
from twinalign.replay.helpers import Helpers
from twinalign.replay.line_spelling import HELPER, PADDLE, in_torch


@dataclasses.dataclass(frozen=True)
class _Spelled:
    """What a function of the port is in torch's process."""

    named: Any
    """What it may have called there: of many edits each changes one function alone, and the others stay as they are."""
    tree: ast.AST
    names: frozenset[str]
    made: CodeType


_SPELLED: "weakref.WeakKeyDictionary[Code, dict[str, _Spelled]]" = weakref.WeakKeyDictionary()
"""Function of the port → its form for torch by the name that it has there: a method is called alone or in its class."""


def definitions(helpers: Helpers, lines: Sequence[ast.AST]) -> Iterator[CodeType]:
    """What defines the functions and classes that lines in torch's spelling refer to, and those that these refer to."""
    functions, classes = helpers.alone, helpers.classes
    waiting, defined = [_names(line) for line in lines], set[str]()
    while waiting:
        names = waiting.pop()
        for name in [
            name for name in (*functions, *classes) if HELPER + name in names and HELPER + name not in defined
        ]:
            defined.add(HELPER + name)
            if name in functions:
                function = _function(functions[name], helpers, HELPER + name)
                waiting.append(function.names)
                yield function.made
                continue
            base = next((f"({PADDLE}.{code.extends})" for code in classes[name] if code.extends), "")
            tree = ast.parse(f"class {HELPER}{name}{base}: pass").body[0]
            methods = [_function(code, helpers, code.tree.name) for code in classes[name]]
            called = (
                ast.parse("__call__ = forward").body
                if any(one.name == f"{name}.forward" for one in classes[name])
                else []
            )
            vars(tree)["body"] = [*(method.tree for method in methods), *called]
            waiting.append(frozenset().union(*(method.names for method in methods)))
            yield compile(ast.Module([tree], []), classes[name][0].file, "exec")


def definition(code: Code, helpers: Helpers) -> CodeType | None:
    """What defines one of the port's functions, which may have an edit in it; None for a method of a plain class."""
    name = code.name.replace(".", "_")
    return _function(code, helpers, HELPER + name).made if name in helpers.alone else None


def _names(tree: ast.AST) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def _function(code: Code, helpers: Helpers, name: str) -> _Spelled:
    named, forms = _named(code, helpers), _SPELLED.setdefault(code, {})
    if name not in forms or forms[name].named != named:
        tree: ast.FunctionDef = in_torch(code.tree, code, None, helpers)
        tree.name = name
        if code.makes_no_graph:
            no_grad = ast.Call(ast.Attribute(ast.Name(PADDLE, ast.Load()), "no_grad", ast.Load()), [], [])
            tree.body = [ast.With([ast.withitem(no_grad)], tree.body)]
        made = compile(ast.fix_missing_locations(ast.Module([tree], [])), code.file, "exec")
        forms[name] = _Spelled(named, tree, _names(tree), made)
    return forms[name]


def _named(code: Code, helpers: Helpers) -> tuple[frozenset[Any], ...]:
    """What a function of the port may call, and only that: most edits are about functions that it does not."""
    names = code.named
    partners = frozenset((name, helpers.partners[name]) for name in names & helpers.partners.keys())
    alone = ((name, helper.name) for name, helper in helpers.alone.items())
    own = {(name, full) for name, full in alone if name in names or last_part(full) in names}
    layers = frozenset(code.layers) - helpers.paired
    return partners, frozenset(own | {(name, "") for name in names & helpers.classes.keys()}), layers
