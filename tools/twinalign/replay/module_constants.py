"""Constants at the top of the port's modules that have another value in the reference's: one number may be mistyped."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import linecache
from collections.abc import Iterator, Sequence
from typing import Any

from twinalign.replay.aligned_code import Code, line_of
from twinalign.replay.code_text import shortened
from twinalign.replay.constants import differ, plain_values
from twinalign.replay.helper_edits import HelperEdit


@dataclasses.dataclass(frozen=True)
class ConstantEdit(HelperEdit):
    """Another value of a constant; `old` and `new` are those values, or `old` the name where it is read.

    Attributes:
        name: of the constant.
        value: the one that it takes.
        functions: of the port that read it.
        is_defined: whether `old` is its value, where it stands.
    """

    name: str
    value: Any
    functions: Sequence[Any]
    is_defined: bool

    @property
    def text(self) -> str:
        had = f"`{shortened(self.old)}`" if self.is_defined else "another value"
        return f"`{self.name}` is {had} in place of `{shortened(self.new)}`, {line_of(self.code, self.old)}"

    @property
    def edited(self) -> Code:
        return self.code

    def to_json(self) -> dict[str, str]:
        before = f"{self.name} = {shortened(self.old)}" if self.is_defined else self.name
        after = shortened(self.new)
        return {"before": before, "after": f"{self.name} = {after}" if self.is_defined else after}


def constants_of_modules(codes: Sequence[Code], theirs: Sequence[Sequence[Any]]) -> Iterator[ConstantEdit]:
    """Each constant that the port's functions read, with the reference's value of its name where that is another.

    `theirs`: the reference's functions, as `values_of` has them.
    """
    known = {name: value for function, _ in theirs for name, value in plain_values(function["globals"]).items()}
    reading: dict[str, list[tuple[Code, Any]]] = {}
    for code in codes:
        for function in code.functions[:1]:
            for name in code.names & known.keys() & function.__globals__.keys():
                if differ(function.__globals__[name], known[name]):
                    reading.setdefault(name, []).append((code, function))
    for name, some in reading.items():
        code, function = some[0]
        new, at = ast.parse(repr(known[name]), mode="eval").body, _defined(function, name)
        read = next((node for node in code.nodes if isinstance(node, ast.Name) and node.id == name), None)
        if (old := at or read) is not None:
            value = type(held)(known[name]) if isinstance(held := function.__globals__[name], tuple) else known[name]
            functions = [one for _, one in some]
            yield ConstantEdit(code, old, ast.copy_location(new, old), name, value, functions, at is not None)


def _defined(function: Any, name: str) -> ast.expr | None:
    """The value of a constant where the module of a function sets it, once."""
    found: list[ast.expr] = []
    with contextlib.suppress(SyntaxError, ValueError):
        file = inspect.getsourcefile(function) or ""
        for statement in ast.parse("".join(linecache.getlines(file))).body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            value = getattr(statement, "value", None)
            if isinstance(value, ast.expr) and any(isinstance(t, ast.Name) and t.id == name for t in targets):
                found.append(value)
    return found[0] if len(found) == 1 else None
