"""An expression of the reference's as a function of the port may write it: each part as what has its values there."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code, last_part
from twinalign.replay.code_text import shortened
from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.known_arrays import are_equal
from twinalign.replay.torch_in_paddle import NotSpelledError, in_paddle
from twinalign.replay.value_trials import Trials

_LIBRARIES = frozenset(("torch", "numpy", "math"))
_HELD = ast.Name, ast.Attribute, ast.Call, ast.Subscript
_OPENED = 4
"""So often are names of the reference's opened."""


class _NoWordsError(Exception):
    """The port has nothing for a part."""


def by_values(code: Code, place: ast.AST, of: Code, node: ast.expr, trials: Trials) -> ast.expr | None:
    """An expression of a function of the reference's in the words that one of the port's has in a place; None if it
    has none.

    What the port has no value for is opened: a name as what it is made of before, a call as its arguments.
    """
    return _Words(code, place, of, trials).of(node)


class _Words:
    def __init__(self, code: Code, place: ast.AST, of: Code, trials: Trials) -> None:
        self._code, self._of, self._trials = code, of, trials
        held = [(node, values) for node, values in trials.values_of(code, place) if isinstance(node, _HELD)]
        # What an object holds is there before the function reads it.
        later = [one for one in trials.values_of(code) if _is_setting(*one)]
        self._held = sorted(
            [*held, *later], key=lambda one: (isinstance(one[0], (ast.Call, ast.Subscript)), len(ast.unparse(one[0])))
        )
        self._scope = {name: value for one in code.functions for name, value in one.__globals__.items()}
        self._made = [
            (one.lineno, one.targets[0].id, one.value)
            for one in of.nodes
            if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name)
        ]

    def of(self, node: ast.expr) -> ast.expr | None:
        try:
            return in_paddle(self._inside(node, 0), self._of.named_things, self._code.modules)
        except (_NoWordsError, NotSpelledError):
            return None

    def _word(self, node: ast.expr, opened: int) -> ast.expr:
        values = self._trials.values_there(self._of, shortened(node))
        if (held := self._holding(values, last_part(ast.unparse(node)))) is not None:
            return held
        if isinstance(node, ast.Name):
            return self._of_name(node, opened)
        if isinstance(node, ast.Attribute) and values:
            return _number(values)
        return self._inside(node, opened)

    def _of_name(self, node: ast.Name, opened: int) -> ast.expr:
        kind, known = ([*self._of.globals.get(node.id, ("", "")), ""])[:2]
        if kind == "name" and str(known).partition(".")[0] in _LIBRARIES:
            return node
        if kind == "value" and isinstance(known, (int, float)):
            names = [name for name, value in self._scope.items() if type(value) is type(known) and value == known]
            return ast.Name(node.id if node.id in names else names[0], ast.Load()) if names else ast.Constant(known)
        made = [value for line, name, value in self._made if name == node.id and line < node.lineno]
        if made and opened < _OPENED:
            return self._word(made[-1], opened + 1)
        if hasattr(builtins, node.id):
            return node
        raise _NoWordsError

    def _inside(self, node: ast.expr, opened: int) -> ast.expr:
        """The same operation of what the port has for its parts."""
        if isinstance(node, (ast.Lambda, ast.Starred, ast.ListComp, ast.GeneratorExp)):
            raise _NoWordsError
        if isinstance(node, ast.Call):
            own = node.func if isinstance(node.func, ast.Name) else None
            if own is not None and self._of_name(own, _OPENED) is not own:  # a function of the user's
                raise _NoWordsError
        function = node.func if isinstance(node, ast.Call) else None
        changed: dict[ast.AST, ast.AST] = {}
        for child in ast.iter_child_nodes(node):
            if child is function and isinstance(child, ast.Attribute):
                changed[child] = with_nodes(child, {child.value: self._word(child.value, opened)})
            elif isinstance(child, ast.keyword):
                changed[child] = ast.keyword(child.arg, self._word(child.value, opened))
            elif isinstance(child, ast.expr) and child is not function:
                changed[child] = self._word(child, opened)
        made: ast.expr = with_nodes(node, changed)
        return made

    def _holding(self, theirs: Sequence[Sequence[np.ndarray]], name: str) -> Any:
        """What the port has the same values for, each time: of that name if something is, and a name before a call."""
        found = [node for node, values in self._held if any(are_equal(values, one) for one in theirs)]
        named = (node for node in found if last_part(ast.unparse(node)) == name)
        chosen = next(named, found[0] if found else None)
        return None if chosen is None else ast.parse(ast.unparse(chosen), mode="eval").body


def _is_setting(node: ast.AST, values: Sequence[np.ndarray]) -> bool:
    """Whether it is an attribute of the object with one plain number."""
    is_own = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"
    return is_own and all(array.shape == () and array == values[0] for array in values)


def _number(theirs: Sequence[Sequence[np.ndarray]]) -> ast.expr:
    """A setting of the reference's as the number that it is."""
    numbers = {float(array) for values in theirs for array in values if array.size == 1}
    if len(numbers) != 1 or any(array.size != 1 for values in theirs for array in values):
        raise _NoWordsError
    (number,) = numbers
    return ast.Constant(int(number) if number.is_integer() else number)
