"""A statement of the port, spelled for the reference's process, where torch computes its calls of paddle."""

import ast
import copy
import sys
from typing import Any

from twinalign.replay.aligned_code import Code
from twinalign.replay.code_lines import is_of_library
from twinalign.replay.helpers import Helpers

PADDLE, ATTRIBUTE, HELPER = "_twinalign_paddle", "_twinalign_attribute", "_twinalign_helper_"
IMPORTED = "_twinalign_imported"
"""Names under which the code finds `paddle_spelling`, attributes, the port's own functions and modules of libraries."""
_SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
"""Nodes that Python's parser shares between trees."""
OF_REFERENCE = "_of_reference"
"""Attribute of a node in the port's code that is the reference's, which torch computes as it is."""


def in_torch(node: ast.AST, code: Code, old: ast.AST | None, helpers: Helpers) -> Any:
    """A piece of the port's code whose names of paddle, and attributes, are looked up in `paddle_spelling`."""
    made = _Spelling(code, helpers).visit(_with_nones(_copied(node), old))
    line = getattr(old, "lineno", None)
    for inner in ast.walk(made):
        if line is not None and isinstance(inner, (ast.expr, ast.stmt)):
            inner.lineno = inner.end_lineno = line
            inner.col_offset = inner.end_col_offset = 0
    return made


def _copied(node: Any) -> Any:
    """As `copy.deepcopy`, which takes four times as long."""
    if isinstance(node, list):
        return [_copied(one) for one in node]
    if not isinstance(node, ast.AST) or isinstance(node, _SHARED):
        return node
    made = copy.copy(node)
    for field, value in ast.iter_fields(node):
        if isinstance(value, (ast.AST, list)):
            setattr(made, field, _copied(value))
    return made


def _with_nones(node: ast.AST, old: ast.AST | None) -> ast.AST:
    """What is returned with None where the reference's line has it: torch's gradients of what is no tensor."""
    if not (isinstance(node, ast.Return) and isinstance(old, ast.Return) and isinstance(old.value, ast.Tuple)):
        return node
    mine = [] if node.value is None else node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    none = [isinstance(one, ast.Constant) and one.value is None for one in old.value.elts]
    if any(none) and len(mine) == none.count(False):
        left = iter(mine)
        node.value = ast.Tuple([ast.Constant(None) if one else next(left) for one in none], ast.Load())
    return node


class _Spelling(ast.NodeTransformer):
    def __init__(self, code: Code, helpers: Helpers) -> None:
        self._code, self._helpers, self._alone = code, helpers, {*helpers.alone, *helpers.classes}
        nodes = list(ast.walk(code.tree))
        local = {node.id for node in nodes if isinstance(node, ast.Name) and not _is_read(node)}
        local |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        self._local = local
        self._names = {name: found for name, found in code.globals.items() if name not in local}
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._names |= _imported(node)

    def visit(self, node: ast.AST) -> Any:
        return node if hasattr(node, OF_REFERENCE) else super().visit(node)

    def visit_Import(self, node: ast.Import) -> Any:
        return ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        return ast.Pass()

    def visit_Name(self, node: ast.Name) -> Any:
        kind, value = self._names.get(node.id, ("", None))
        if not _is_read(node) or not kind:
            return node
        if kind == "value":
            return ast.Constant(value)
        if kind == "literal":
            return ast.parse(value, mode="eval").body
        if str(value).partition(".")[0] != "paddle":
            own = str(value).rpartition(".")[2]
            if own in self._helpers.partners or own in self._alone:
                return ast.Name(self._helpers.partners.get(own, HELPER + own), node.ctx)
            return _of_library(str(value)) or node
        found: ast.expr = ast.Name(PADDLE, ast.Load())
        for part in str(value).split(".")[-1:]:
            is_module = part in ("paddle", "functional", "nn", "tensor", "linalg")
            found = found if is_module else ast.Attribute(found, part, ast.Load())
        return found

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value = self.visit(node.value)
        if isinstance(value, ast.Name) and value.id == "self":
            node = ast.Attribute(value, self._helpers.partners.get(node.attr, node.attr), node.ctx)
        if not isinstance(node.ctx, ast.Load) or _is_paddle(value):
            return ast.Attribute(value, node.attr, node.ctx)
        given = [value, ast.Constant(node.attr)]
        if isinstance(value, ast.Name) and value.id == "self" and node.attr in self._code.attributes:
            given.append(ast.Constant(self._code.attributes[node.attr]))
        return ast.Call(ast.Name(ATTRIBUTE, ast.Load()), given, [])

    def visit_Call(self, node: ast.Call) -> Any:
        layer = self._helpers.layer(self._code, node.func)
        if (method := layer or self._helpers.method(self._code, node.func)) is not None:
            assert isinstance(node.func, ast.Attribute)
            arguments = [self._own_layer(node.func.attr) if layer else node.func.value, *map(self.visit, node.args)]
            return ast.Call(ast.Name(HELPER + method, ast.Load()), arguments, [*map(self.visit, node.keywords)])
        may_be_layer = self._may_be_layer(node.func)
        self.generic_visit(node)
        if may_be_layer:
            node.func = ast.Call(ast.Name(ATTRIBUTE, ast.Load()), [node.func, ast.Constant("__call__")], [])
        return node

    def _own_layer(self, name: str) -> ast.expr:
        """An object in place of a layer that the reference lacks: its plain attributes, and nothing else."""
        plain = [ast.keyword(key, ast.Constant(value)) for key, value in self._code.layers[name][1].items()]
        kind = _of_library("types.SimpleNamespace")
        assert kind is not None
        return ast.Call(kind, [], plain)

    def _may_be_layer(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Name):
            return function.id in self._local
        while isinstance(function, (ast.Attribute, ast.Subscript)):
            function = function.value
        return isinstance(function, ast.Name) and function.id in self._local

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Pow):
            power = ast.Attribute(ast.Name(PADDLE, ast.Load()), "pow", ast.Load())
            return ast.Call(power, [left, right], [])
        return ast.BinOp(left, node.op, right)


def _of_library(place: str) -> ast.expr | None:
    """A module, or something in one, that the reference's process has, too; None for the port's own modules."""
    for module, name in ((place, ""), place.rpartition(".")[::2]):
        if (found := sys.modules.get(module)) is not None and is_of_library(getattr(found, "__file__", None)):
            call: ast.expr = ast.Call(ast.Name(IMPORTED, ast.Load()), [ast.Constant(module)], [])
            return ast.Attribute(call, name, ast.Load()) if name else call
    return None


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _is_paddle(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id == PADDLE


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, tuple[str, str]]:
    prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    found = {}
    for one in node.names:
        name = one.asname or one.name.partition(".")[0]
        place = f"{prefix}{one.name}" if prefix or one.asname else name
        found[name] = ("name", place)
    return found
