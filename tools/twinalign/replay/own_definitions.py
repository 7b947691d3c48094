"""The port's own functions and plain classes, defined in the reference's process for lines that name them."""

import ast
import weakref
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

from twinalign.replay.aligned_code import Code
from twinalign.replay.helpers import Helpers
from twinalign.replay.line_spelling import HELPER, PADDLE, in_torch

_SPELLED: "weakref.WeakKeyDictionary[Code, tuple[Any, ast.FunctionDef, CodeType]]" = weakref.WeakKeyDictionary()
"""Function of the port → what it may call, and its form for torch: of many edits each changes one function alone."""


def definitions(helpers: Helpers, lines: Sequence[ast.AST]) -> Iterator[CodeType]:
    """What defines the functions and classes that lines in torch's spelling refer to, and those that these refer to."""
    functions, classes = helpers.alone, helpers.classes
    waiting, defined = list(lines), set[str]()
    while waiting:
        names = {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)}
        for name in [name for name in (*functions, *classes) if HELPER + name in names - defined]:
            defined.add(HELPER + name)
            if name in functions:
                function, made = _function(functions[name], helpers, HELPER + name)
                waiting.append(function)
                yield made
                continue
            tree = ast.parse(f"class {HELPER}{name}: pass").body[0]
            vars(tree)["body"] = [_function(code, helpers, code.tree.name)[0] for code in classes[name]]
            waiting.append(tree)
            yield _compiled(tree, classes[name][0].file)


def _function(code: Code, helpers: Helpers, name: str) -> tuple[ast.FunctionDef, CodeType]:
    known = name, tuple(sorted(helpers.partners.items())), frozenset((*helpers.alone, *helpers.classes))
    if code not in _SPELLED or _SPELLED[code][0] != known:
        tree: ast.FunctionDef = in_torch(code.tree, code, None, helpers)
        tree.name = name
        if code.makes_no_graph:
            no_grad = ast.Call(ast.Attribute(ast.Name(PADDLE, ast.Load()), "no_grad", ast.Load()), [], [])
            tree.body = [ast.With([ast.withitem(no_grad)], tree.body)]
        _SPELLED[code] = known, tree, _compiled(tree, code.file)
    return _SPELLED[code][1:]


def _compiled(tree: ast.stmt, file: str) -> CodeType:
    return compile(ast.fix_missing_locations(ast.Module([tree], [])), file, "exec")
