"""What the packed source of a case assigns, read as a syntax tree: comments and texts elsewhere do not count."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

_SOURCE_LIMIT = 1 << 20
"""Bytes of one source file that is parsed; a syntax tree takes a hundred times as much memory."""


class CaseSource:
    """The syntax trees of those packed files that mention one of `words`."""

    def __init__(self, sources: Iterable[bytes | memoryview], words: Collection[str]) -> None:
        self._trees: list[ast.AST] = []
        self.unread = False
        """Whether one that mentions them is too long, or cannot be parsed by this Python."""
        left = _SOURCE_LIMIT
        for source in sources:
            text = bytes(source[: left + 1])
            if not any(word.encode() in text for word in words):
                continue
            try:
                if len(text) > left:
                    raise ValueError("too long")
                left -= len(text)
                self._trees.append(ast.parse(text))
            except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
                self.unread = True

    def assigned(self, name: str) -> list[ast.expr]:
        """Every expression that is assigned to this name, passed under it, or returned by a function of it."""
        return [value for target, value in self._assignments() if target == name]

    def assigns_text(self, name: str, text: str) -> bool:
        """Whether `text` is among the texts that are assigned to `name`, directly or through other names."""
        known: set[str] = set()
        waiting = self.assigned(name)
        while waiting:
            for node in ast.walk(waiting.pop()):
                if isinstance(node, ast.Constant) and node.value == text:
                    return True
                if isinstance(node, ast.JoinedStr) and re.fullmatch(_pattern_of(node), text, re.DOTALL):
                    return True
                other = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
                if other and other not in known:
                    known.add(other)
                    waiting += self.assigned(other)
        return False

    def defines(self, name: str) -> bool:
        """Whether a function has this name, or something is assigned to it."""
        nodes = (node for tree in self._trees for node in ast.walk(tree))
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        return bool(self.assigned(name)) or any(isinstance(n, functions) and n.name == name for n in nodes)

    def uses(self, name: str) -> bool:
        """Whether the name stands anywhere in the code: as a variable, an attribute or an argument's name."""
        nodes = (node for tree in self._trees for node in ast.walk(tree))
        return any(name in (getattr(node, field, None) for field in ("id", "attr", "arg")) for node in nodes)

    def _assignments(self) -> Iterator[tuple[str, ast.expr]]:
        for node in (node for tree in self._trees for node in ast.walk(tree)):
            value: Any = getattr(node, "value", None)
            if isinstance(node, ast.FunctionDef):
                yield from ((node.name, at.value) for at in ast.walk(node) if isinstance(at, ast.Return) and at.value)
            elif isinstance(node, ast.keyword) and node.arg:
                yield node.arg, value
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                        if isinstance(part, ast.Name | ast.Attribute):
                            yield part.id if isinstance(part, ast.Name) else part.attr, value


def _pattern_of(joined: ast.JoinedStr) -> str:
    """A regular expression for what an f-string can give, whose variable parts hold no `=` and no wildcard."""
    parts = (re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"[^=*?]+" for part in joined.values)
    return "".join(parts)
