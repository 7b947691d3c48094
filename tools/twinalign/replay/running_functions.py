"""The user's own functions that run in a part of a case, as code that can be edited and run in their place."""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import gc
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Set
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code, parsed
from twinalign.replay.code_lines import Function, is_own_code, noting, tracing

_NUMBERS = frozenset(("int", "float", "bool"))
_COMPUTED = _NUMBERS | {"tensor"}
"""Kinds of values that code computes with."""
_TO_NUMBERS = frozenset(("bool", "float", "int", "len", "max", "min", "round"))
"""Functions of Python's that return one number."""


def functions_of(run: Callable[[], Any], side: str = "torch") -> list[Code]:
    """A side's own functions that run; none where a debugger or a coverage tool looks on."""
    if sys.gettrace() is not None:
        return []
    noted: dict[CodeType, Function] = {}
    with noting(noted):
        run()
    # Of what a function defines inside it, methods of classes stay; other functions are made anew with each call.
    inside = {code: text.name.rpartition("<locals>.")[2] for code, text in noted.items() if "<locals>" in text.name}
    return codes_running({code: text for code, text in noted.items() if "." in inside.get(code, ".")}, side)


def codes_running(noted: Mapping[CodeType, Function], side: str) -> list[Code]:
    """Functions that were noted, with the function objects that run their code."""
    functions: dict[CodeType, list[FunctionType]] = {}
    for holder in gc.get_referrers(*noted) if noted else ():  # for all at once: it looks at every object there is
        if isinstance(holder, FunctionType) and holder.__code__ in noted:
            functions.setdefault(holder.__code__, []).append(holder)
    made = (
        parsed(text.source, text.file, text.line, text.name, side, functions=functions[code])
        for code, text in noted.items()
        if code in functions and text.source
    )
    return [one for one in made if one is not None]


@dataclasses.dataclass
class Ran:
    """What a run has shown of the user's own code.

    Attributes:
        lines: name of the file, and number, of each line that ran.
        kinds: file and first line of a function → names of its values, and of its object's → kinds of what they were.
    """

    lines: set[tuple[str, int]] = dataclasses.field(default_factory=set)
    kinds: dict[tuple[str, int], dict[str, set[str]]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, run: Callable[[], Any]) -> Ran:
        """What a run shows, unless a debugger or a coverage tool looks on."""
        found = cls()
        with contextlib.nullcontext() if sys.gettrace() is not None else tracing(found._trace):
            run()
        return found

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call" and not is_own_code(frame):
            return None
        code, file = frame.f_code, Path(frame.f_code.co_filename).name
        if event == "line":
            self.lines.add((file, frame.f_lineno))
        elif event == "return":
            held = getattr(frame.f_locals.get("self"), "__dict__", {})
            known = self.kinds.setdefault((file, code.co_firstlineno), {})
            for name, value in (*frame.f_locals.items(), *((f"self.{one}", held[one]) for one in held)):
                known.setdefault(name, set()).add(_kind(value))
        return self._trace

    def may_stand(self, code: Code, old: ast.AST, new: ast.AST) -> bool:
        """Whether what an edit writes is there, and a value where one is computed with; what is not known may be."""
        if not isinstance(old, ast.expr):
            return True
        kinds = self._of(code)
        before = {id(one) for one in ast.walk(old)}
        if kinds and not all(
            self._is_there(code, kinds, old, one.id)
            for one in ast.walk(new)
            if isinstance(one, ast.Name) and id(one) not in before
        ):
            return False
        if isinstance(new, (ast.Name, ast.Attribute)) and not isinstance(old, ast.Constant):
            nothing: Set[str] = frozenset()
            ours, others = (kinds.get(ast.unparse(one), nothing) for one in (new, old))
            if not isinstance(old, (ast.Name, ast.Attribute)) and isinstance(new, ast.Name):
                others = others or _COMPUTED
            return not ours or not others or _alike(ours, others)
        made = [one for one in ast.walk(new) if id(one) not in before]
        names = _operands(made) - _operands(ast.walk(old))  # lists are added, too
        if any(
            code.globals.get(name, "")[:1] == ["name"] or not _alike(kinds.get(name, _COMPUTED), _COMPUTED)
            for name in names
        ):
            return False
        return all(_has_sense(kinds, code, old, one) for one in made)

    def is_whole(self, code: Code, node: ast.AST) -> bool:
        """Whether a value was a whole number in all calls of the function, as far as one can tell."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            return True
        return isinstance(node, (ast.Name, ast.Attribute)) and self._of(code).get(ast.unparse(node)) == {"int"}

    def _of(self, code: Code) -> Mapping[str, Set[str]]:
        """Names of values of a function → their kinds."""
        first = code.functions[0].__code__.co_firstlineno if code.functions else code.tree.lineno
        return self.kinds.get((code.file, first), {})

    def _is_there(self, code: Code, kinds: Mapping[str, Set[str]], old: ast.expr, name: str) -> bool:
        inside = {one.id for one in ast.walk(old) if isinstance(one, ast.Name)}
        if name not in kinds:  # of a module, or of a comprehension
            return name in code.globals or name in vars(builtins) or name in inside or not inside <= kinds.keys()
        first = code.first_lines.get(name, 0)
        return first < old.lineno or any(old.lineno in span and first in span for span in code.loops)


def _operands(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that are operands of an operation among these."""
    both = [two for one in nodes if isinstance(one, ast.BinOp) for two in (one.left, one.right)]
    return {one.id for one in both if isinstance(one, ast.Name)}


def _has_sense(kinds: Mapping[str, Set[str]], code: Code, old: ast.AST, new: ast.AST) -> bool:
    """Whether a new part of the code is no call or place that a value of a known kind cannot have."""
    if isinstance(new, ast.Subscript) and isinstance(new.value, ast.Name):
        ours = kinds.get(new.value.id)
        if not ours:
            return True
        if ours <= _NUMBERS:
            return False
        chosen = kinds.get(new.slice.id) if isinstance(new.slice, ast.Name) else None
        of_mask = chosen and any("bool" in one for one in chosen)
        return not of_mask or _most_axes(ours) >= _most_axes(chosen or set())
    if isinstance(new, ast.Attribute) and new.attr == "detach" and isinstance(new.value, ast.Name):
        return new.value.id not in code.globals and _most_axes(kinds.get(new.value.id, {"tensor 1"})) > 0
    if isinstance(new, ast.Call) and isinstance(old, ast.Name) and old.id in kinds:
        if isinstance(new.func, ast.Name) and new.func.id in _TO_NUMBERS and not _alike(kinds[old.id], _NUMBERS):
            return False
        return old not in new.args or _alike(kinds[old.id], _COMPUTED | {"list"})
    return True


def _most_axes(kinds: Set[str]) -> int:
    return max((int(one.rpartition(" ")[2]) for one in kinds if one.startswith("tensor")), default=0)


def _kind(value: Any) -> str:
    if type(value).__module__.partition(".")[0] in ("numpy", "paddle", "torch") and hasattr(value, "dtype"):
        axes = len(getattr(value, "shape", ()))
        if axes or not isinstance(value, np.generic):
            return f"tensor of {'bool' if 'bool' in str(value.dtype) else 'numbers'} {axes}"
        return "float"
    return "list" if isinstance(value, (list, tuple)) else type(value).__qualname__


def _alike(kinds: Set[str], others: Set[str]) -> bool:
    """Whether values of some kinds may be meant for values of others."""
    sides = [{"number" if one in _NUMBERS else one.partition(" ")[0] for one in side} for side in (kinds, others)]
    return not sides[0].isdisjoint(sides[1])


def nodes_that_ran(codes: Iterable[Code], lines: Container[tuple[str, int]]) -> set[int]:
    """id of each part of the statements, or of what a block asks or goes through, in these lines; and of defaults."""
    found: set[int] = set()
    for code in codes:
        found.update(id(node) for default in code.tree.args.defaults for node in ast.walk(default))
        for node in [one for one in ast.walk(code.tree) if isinstance(one, ast.stmt)]:
            asked = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
            parts: list[Any] = asked if hasattr(node, "body") else [node]
            if any((code.file, at) in lines for one in parts for at in range(one.lineno, (one.end_lineno or 0) + 1)):
                found |= {id(node), *(id(one) for part in parts for one in ast.walk(part))}
    return found
