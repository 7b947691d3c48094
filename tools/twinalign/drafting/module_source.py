"""One module of the reference's package: its top-level statements, the names that each binds and needs."""

import ast
import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from twinalign.drafting.own_name import with_own_name
from twinalign.drafting.promotions import NO_CASTS, Promotion, with_casts
from twinalign.drafting.untaken_branches import without_untaken

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclasses.dataclass(frozen=True)
class Import:
    """What a name stands for that an import statement binds."""

    module: str
    """Full name of the module."""
    attribute: str | None
    """None: the name is the module itself."""


class ModuleSource:
    """A parsed module; nothing of it is run.

    Operations between tensors of two types are given casts, and the package's name becomes the port's where a module's
    name is compared with it. Where it is known which lines `ran`, untaken branches are left out.
    """

    def __init__(
        self, name: str, path: Path, promoted: Sequence[Promotion] = (), ran: Collection[int] | None = None
    ) -> None:
        self.name, self.path = name, path
        self.text = path.read_text(encoding="utf-8")
        self.has_casts = with_casts(self.text, [one for one in promoted if not NO_CASTS & set(one)]) != self.text
        self.text = with_casts(self.text, promoted)
        if ran is not None:
            self.text = without_untaken(name, self.text, ran)
        self.text = with_own_name(name, self.text)
        self.lines = self.text.splitlines(keepends=True)
        self.tree = ast.parse(self.text)
        self.is_package = path.name == "__init__.py"
        self.binds: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body:
            for bound in bound_by(statement):
                self.binds.setdefault(bound, []).append(statement)

    def target_of(self, statement: ast.ImportFrom) -> str:
        """Full name of the module that a (relative) import names."""
        if not statement.level:
            return statement.module or ""
        steps = self.name.split(".")
        steps = steps[: len(steps) - statement.level + (1 if self.is_package else 0)]
        return ".".join([*steps, *([statement.module] if statement.module else [])])

    def imports_in(self, node: ast.AST) -> dict[str, Import]:
        """Name → what it stands for, of every import in a statement."""
        found = {}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Import):
                for alias in inner.names:
                    whole = alias.name if alias.asname else alias.name.partition(".")[0]
                    found[alias.asname or whole] = Import(whole, None)
            elif isinstance(inner, ast.ImportFrom):
                for alias in inner.names:
                    found[alias.asname or alias.name] = Import(self.target_of(inner), alias.name)
        return found

    def span(self, node: ast.stmt) -> tuple[int, int]:
        """First and last line (from 1) of a statement with its decorators and the comments right above it."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        while first > 1 and self.lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return first, node.end_lineno or node.lineno

    def docstring_end(self) -> int:
        """Last line of the module's docstring and of the comments at its head; 0 without."""
        end = 0
        while end < len(self.lines) and self.lines[end].startswith("#"):
            end += 1
        first = self.tree.body[0] if self.tree.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            end = max(end, first.end_lineno or 0)
        return end


def bound_by(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement binds where it stands."""
    if isinstance(statement, _DEFINITIONS):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, _DEFINITIONS):
            yield node.name


def is_definition(node: ast.AST) -> bool:
    """Whether it is a `def` or a `class`."""
    return isinstance(node, _DEFINITIONS)


def first_line(node: Definition) -> int:
    """Where Python says that a function begins: at its first decorator."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def names_in(*nodes: ast.AST | None) -> set[str]:
    """Names that are read in the nodes."""
    return {
        inner.id
        for node in nodes
        if node is not None
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
    }


def attributes_of(node: ast.AST, name: str) -> set[str]:
    """Attributes of the variable `name` that are read in a node."""
    return {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == name
    }
