"""An expression of the reference in paddle's words, as far as functions and methods of both differ in their names."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Mapping
from typing import Any

from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.likeness import SPELLED
from twinalign.replay.line_spelling import OF_REFERENCE

_FROM = {torch: paddle for paddle, torch in SPELLED.items() if paddle != "permute"} | {
    "transpose": "swapaxes", "permute": "transpose", "view": "reshape",
    "as_tensor": "to_tensor", "tensor": "to_tensor", "from_numpy": "to_tensor",
}  # fmt: skip
_WITH_LISTS = frozenset(("reshape", "expand", "tile", "transpose"))
"""Methods that take a list in paddle, and several numbers in torch."""
_TYPES = {"float": "float32", "double": "float64", "long": "int64", "int": "int32", "bool": "bool"}
"""Methods of torch that change the type."""
_NO_METHODS = frozenset(("contiguous", "cpu", "cuda"))
"""Methods of torch that change nothing."""
_IN_PLACE = {"add_": ast.Add(), "sub_": ast.Sub(), "mul_": ast.Mult(), "div_": ast.Div()}
_OF_DIMENSIONS = re.compile(r"[A-Z]\w*[123]d")
"""Layers, whose names end with a capital letter in paddle."""
_OF_TWO = {"min": "minimum", "max": "maximum"}
_OF_SHAPE = frozenset(("empty", "ones", "rand", "randn", "zeros"))
"""Functions that take a shape, which in torch may be several numbers."""
_OF_VALUES = frozenset(("sort", "max", "min"))
"""What returns values and indices along an axis in torch, and in paddle values alone, beside `argsort` and others."""
_RESULTS = {"values": 0, "indices": 1}
_LIBRARIES = ("torch", "numpy", "math", "itertools")


class NotSpelledError(Exception):
    """An expression has something for which paddle has no word here."""


def in_paddle(node: ast.expr, theirs: Mapping[str, str], ours: Mapping[str, str]) -> ast.expr:
    """The expression in paddle's words.

    Args:
        theirs: names that the reference's code reads from its module → the module or function that they are.
        ours: module or function → its name in the port's code.

    Raises:
        NotSpelledError: it needs a module that the port has no name for.
    """
    found: ast.expr = _Spelling(theirs, ours).visit(copy.deepcopy(node))
    return found


def with_paddles_words(tree: ast.AST) -> ast.AST:
    """Code of the port with what it takes from the reference in paddle's words, as far as `in_paddle` knows them."""
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and hasattr(node, OF_REFERENCE)]
    names = {"torch": "torch"}, {"paddle": "paddle"}
    return with_nodes(tree, {node: in_paddle(node, *names) for node in taken})


class _Spelling(ast.NodeTransformer):
    def __init__(self, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
        self._theirs, self._ours = theirs, ours

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if node.attr in _RESULTS and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            return self._result(node.value, node.value.func, _RESULTS[node.attr])
        place = self._place(node)
        return self._named(place) if place else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        place = self._theirs.get(node.id, "")
        return self._named(place) if place.partition(".")[0] in _LIBRARIES else node

    def visit_keyword(self, node: ast.keyword) -> Any:
        return ast.keyword(_FROM.get(node.arg or "", node.arg), self.visit(node.value))

    def _result(self, call: ast.Call, function: ast.Attribute, number: int) -> ast.expr:
        """The values or the indices of `x.sort(dim=1)`, `torch.topk(x, 3)` and others."""
        if function.attr not in _OF_VALUES:
            return ast.Subscript(self.visit(call), ast.Constant(number), ast.Load())
        name = f"arg{function.attr}" if number else function.attr
        found: ast.expr = self.visit(
            ast.Call(ast.Attribute(function.value, name, ast.Load()), call.args, call.keywords)
        )
        return found

    def visit_Call(self, node: ast.Call) -> Any:
        function = node.func
        if isinstance(function, ast.Attribute) and not self._place(function):
            return self._method(node, function)
        place = self._place(function)
        if place == "itertools.chain":  # of lists, which paddle's parameters are
            return ast.List([ast.Starred(self.visit(one), ast.Load()) for one in node.args], ast.Load())
        of_two = _OF_TWO.get(place.removeprefix("torch."))
        if of_two and len(node.args) == 2 and not isinstance(node.args[1], (ast.Constant, ast.UnaryOp)):  # an axis
            return ast.Call(self._named(f"torch.{of_two}"), [self.visit(one) for one in node.args], [])
        if place.removeprefix("torch.") in _OF_SHAPE and len(node.args) > 1:
            node = ast.Call(function, [ast.List(node.args, ast.Load())], node.keywords)
        return self.generic_visit(node)

    def _method(self, node: ast.Call, function: ast.Attribute) -> ast.expr:
        holder: ast.expr = self.visit(function.value)
        given, named = [self.visit(one) for one in node.args], [self.visit(one) for one in node.keywords]
        if function.attr in _NO_METHODS:
            return holder
        if function.attr in _TYPES and not node.args:
            return ast.Call(ast.Attribute(holder, "astype", ast.Load()), [ast.Constant(_TYPES[function.attr])], [])
        if function.attr == "size" and len(given) == 1:
            return ast.Subscript(ast.Attribute(holder, "shape", ast.Load()), given[0], ast.Load())
        if function.attr in _IN_PLACE and len(given) == 1:  # its value is what the port computes
            scales = [one.value for one in named if one.arg == "alpha"]
            other = ast.BinOp(given[0], ast.Mult(), scales[0]) if scales else given[0]
            return ast.BinOp(holder, _IN_PLACE[function.attr], other)
        name = _FROM.get(function.attr, function.attr)
        if name in _WITH_LISTS and (len(given) != 1 or isinstance(given[0], ast.Starred)):  # else paddle takes it so
            given = [ast.List(given, ast.Load())]
        return ast.Call(ast.Attribute(holder, name, ast.Load()), given, named)

    def _place(self, node: ast.expr) -> str:
        """Where a function or module of a library has its place, as `torch.nn.functional.relu`; empty for others."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        root = self._theirs.get(node.id, "") if isinstance(node, ast.Name) else ""
        return ".".join([root, *reversed(names)]) if root.partition(".")[0] in _LIBRARIES else ""

    def _named(self, place: str) -> ast.expr:
        holder, _, name = place.rpartition(".")
        if not holder:
            return self._root(place)
        if place.startswith("torch."):
            name = _FROM.get(name, name)
            name = f"{name[:-1]}D" if _OF_DIMENSIONS.fullmatch(name) else name
            holder = holder.replace("torch", "paddle", 1)
        if (own := self._ours.get(f"{holder}.{name}")) is not None:
            return ast.Name(own, ast.Load())
        return ast.Attribute(self._root(holder), name, ast.Load())

    def _root(self, place: str) -> ast.expr:
        if (own := self._ours.get(place)) is not None:
            return ast.Name(own, ast.Load())
        holder, _, name = place.rpartition(".")
        if not holder:
            raise NotSpelledError(place)
        return ast.Attribute(self._root(holder), name, ast.Load())
