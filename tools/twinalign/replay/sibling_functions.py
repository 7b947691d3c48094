"""Calls of a library's function with another one of its module in its place that is called much alike."""

from __future__ import annotations

import ast
import difflib
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from twinalign.replay.aligned_code import Code

_MOST, _ALIKE = 3, 0.6
"""So many names for each call, of such a share of equal letters."""
Edit = tuple[ast.expr, ast.expr]


def sibling_functions(code: Code) -> Iterator[Edit]:
    """`clip_grad_value_` for `clip_grad_norm_`, `MultiStepDecay` for `StepDecay`: the most alike first."""
    scope = {name: value for one in code.functions for name, value in one.__globals__.items()}
    for call in code.calls:
        if not isinstance(call.func, ast.Attribute) or not isinstance(
            module := _value(call.func.value, scope), ModuleType
        ):
            continue
        for name in _siblings(module, call.func.attr):
            yield call.func, ast.Attribute(call.func.value, name, ast.Load())


@functools.lru_cache(maxsize=4096)
def _siblings(module: ModuleType, name: str) -> list[str]:
    """Names of a module's functions that are called much as one of them, the most alike first."""
    # A search asks this of each call several times, and a library has a thousand names.
    own = getattr(module, name, None)
    names = [one for one, value in vars(module).items() if one[:1] != "_" and type(value) is type(own)]
    alike = difflib.get_close_matches(name, names, _MOST + 1, _ALIKE)
    return [one for one in alike if one != name and getattr(module, one) is not own]


def _value(node: ast.expr, scope: dict[str, Any]) -> Any:
    """What a name, or an attribute of a module, stands for; None for anything else."""
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    held = _value(node.value, scope) if isinstance(node, ast.Attribute) else None
    return getattr(held, node.attr, None) if isinstance(node, ast.Attribute) and isinstance(held, ModuleType) else None
