"""The part of the reference's sources that its model needs, as a package of its own, still in torch."""

import ast
import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.drafting.module_source import (
    Definition,
    ModuleSource,
    attributes_of,
    first_line,
    is_definition,
    names_in,
)
from twinalign.drafting.rewriting import Change


class _Read(enum.Enum):
    """When Python reads a name."""

    IMPORT = "while it imports the module"
    CALLED_BY_IMPORT = "in a function that an import calls"
    RUN = "in a function that ran with the model"


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEFT_OUT = "left out of the port: the model never calls it"


@dataclasses.dataclass
class _Needed:
    """What is kept of a module."""

    statements: set[ast.stmt] = dataclasses.field(default_factory=set)
    stubs: set[ast.stmt] = dataclasses.field(default_factory=set)
    modules: set[str] = dataclasses.field(default_factory=set)
    """Names of modules of the package that are used as modules."""


class Selection:
    """Follows the names that a model needs, from the class that was built, through its packages."""

    def __init__(self, observed: Mapping[str, Any]) -> None:
        self._files: dict[str, str] = observed["modules"]
        self._imported = {name: set(lines) for name, lines in observed["imported"].items()}
        self._entered = {name: set(lines) for name, lines in observed["entered"].items()}
        ran = self._imported.keys() | self._entered.keys()
        self._executed = {name: self._imported.get(name, set()) | self._entered.get(name, set()) for name in ran}
        self._plain = {name: set(names) for name, names in observed["plain"].items()}
        self._sources: dict[str, ModuleSource] = {}
        self._needed: dict[str, _Needed] = {}
        self._done: set[tuple[str, str, _Read]] = set()
        self.root = observed["root"]
        self.dropped: list[Change] = []
        for module, name in self.root["imports"]:
            if module in self._files:
                self._need(module, name.partition(".")[0], _Read.IMPORT)
        self.registering = [module for module in sorted(self._entered) if self._keep_registrations(module)]

    def _keep_registrations(self, module: str) -> bool:
        """Keep the calls of a module's top level that hand a class or function that ran to one of the packages'."""
        source = self._source(module)
        found = [
            statement
            for statement in source.tree.body
            if isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and self._home_in(source, statement.value.func)
            and any(self._was_entered(source, argument) for argument in statement.value.args)
        ]
        for statement in found:
            self._keep(source, statement, _Read.IMPORT)
        return bool(found)

    def _home_in(self, source: ModuleSource, node: ast.expr) -> tuple[str, str | None] | None:
        return self.resolve(source.name, node.id) if isinstance(node, ast.Name) else None

    def _was_entered(self, source: ModuleSource, node: ast.expr) -> bool:
        home = self._home_in(source, node)
        if home is None or home[1] is None:
            return False
        lines = self._entered.get(home[0], set())
        definitions = filter(is_definition, self._source(home[0]).binds[home[1]])
        return any(first_line(function) in lines for one in definitions for function in _functions_in(one))

    def _source(self, name: str) -> ModuleSource:
        if name not in self._sources:
            self._sources[name] = ModuleSource(name, Path(self._files[name]))
        return self._sources[name]

    def files(self) -> dict[str, str]:
        """Path in the port's package → source, for every module that is needed; `__init__.py` where one must be."""
        found = {f"{self._place(name)}.py": self._text(name) for name in sorted(self._needed)}
        for path in list(found):
            for folder in Path(path).parents:
                found.setdefault(str(folder / "__init__.py"), "")
        return found

    def home_of(self, module: str) -> str:
        """Name of a module below the port's package: `models.levit` of `timm.models.levit`."""
        return self._place(module).replace("/", ".").removesuffix(".__init__")

    def licences(self) -> list[Path]:
        """Licence files of the packages that sources are taken from."""
        folders = set()
        for name in self._needed:
            path = Path(self._files[name])
            package = name.partition(".")[0]
            while path.name != package and path.parent != path:
                path = path.parent
            folders |= set(path.parent.glob(f"{package}-*.dist-info")) if path.name == package else set()
        return sorted(path for folder in folders for path in folder.rglob("LICEN[SC]E*") if path.is_file())

    def _place(self, module: str) -> str:
        package, _, rest = module.partition(".")
        steps = rest.split(".") if rest else [package]
        if len({name.partition(".")[0] for name in self._needed}) > 1 and rest:
            steps = [package, *steps]
        if rest and self._source(module).is_package:
            steps.append("__init__")
        return "/".join(steps)

    # Following names

    def _need(self, module: str, name: str, read: _Read) -> None:
        """Keep what binds a name; what is only named in code that ran may be a stub where it did not run itself."""
        if (module, name, read) in self._done:
            return
        self._done.add((module, name, read))
        source = self._source(module)
        if name not in source.binds:
            if f"{module}.{name}" in self._files:
                self._needed.setdefault(f"{module}.{name}", _Needed())
            for target in self._starred(source):
                if name in self._source(target).binds:
                    self._need(target, name, read)
            return
        for statement in source.binds[name]:
            imported = source.imports_in(statement).get(name) if not is_definition(statement) else None
            if imported is not None and isinstance(statement, (ast.Import, ast.ImportFrom)):
                home = self.resolve(imported.module, imported.attribute)
                if home is not None:
                    self._need_imported(module, name, *home, read)
                    continue
            self._keep(source, statement, read)

    def _need_imported(self, module: str, name: str, home: str, attribute: str | None, read: _Read) -> None:
        kept = self._needed.setdefault(module, _Needed())
        if attribute is not None:
            self._need(home, attribute, read)
            return
        kept.modules.add(home)
        self._needed.setdefault(home, _Needed())
        for statement in list(self._source(module).tree.body):
            for used in attributes_of(statement, name):
                self._need(home, used, read)

    def resolve(self, module: str, attribute: str | None) -> tuple[str, str | None] | None:
        """Where a name of the model's own packages is defined (module, name or None for a module); else None."""
        if module not in self._files:
            return None
        if attribute is None:
            return module, None
        source = self._source(module)
        for statement in source.binds.get(attribute, ()):
            imported = source.imports_in(statement).get(attribute)
            if isinstance(statement, (ast.Import, ast.ImportFrom)) and imported is not None:
                return self.resolve(imported.module, imported.attribute)
        if attribute in source.binds:
            return module, attribute
        if f"{module}.{attribute}" in self._files:
            return f"{module}.{attribute}", None
        homes = (self.resolve(target, attribute) for target in self._starred(source))
        return next((home for home in homes if home is not None), None)

    def _outside(self, module: str, attribute: str | None) -> tuple[str, str | None]:
        """Module and name outside of the packages that a name stands for, which others of the packages may pass on."""
        if module not in self._files or attribute is None:
            return module, attribute
        source = self._source(module)
        for statement in source.binds.get(attribute, ()):
            imported = source.imports_in(statement).get(attribute)
            if imported is not None:
                return self._outside(imported.module, imported.attribute)
        found = [
            self._outside(target, attribute)
            for target in self._starred(source)
            if self._knows(self._source(target), attribute)
        ]
        return found[0] if found else (module, attribute)

    def _starred(self, source: ModuleSource) -> list[str]:
        """Modules of the model's own packages of which everything is imported."""
        stars = [s for s in source.tree.body if isinstance(s, ast.ImportFrom) and s.names[0].name == "*"]
        return [target for target in map(source.target_of, stars) if target in self._files]

    def _knows(self, source: ModuleSource, name: str) -> bool:
        return name in source.binds or any(name in self._source(target).binds for target in self._starred(source))

    def _keep(self, source: ModuleSource, statement: ast.stmt, read: _Read) -> None:
        kept = self._needed.setdefault(source.name, _Needed())
        if statement in kept.statements:
            return
        if is_definition(statement) and read is not _Read.IMPORT and not self._ran(source.name, statement, read):
            kept.stubs.add(statement)
            return
        kept.stubs.discard(statement)
        kept.statements.add(statement)
        for name in self._names_at_import(source, statement):
            self._need(source.name, name, _Read.IMPORT)
        if not is_definition(statement):  # try: from … import …
            for imported in source.imports_in(statement).values():
                home = self.resolve(imported.module, imported.attribute)
                if home is not None and home[1] is not None:
                    self._need(home[0], home[1], _Read.IMPORT)
        for node, read in self._bodies(source.name, statement):
            for name in names_in(node):
                if self._knows(source, name):
                    self._need(source.name, name, read)
            for imported in source.imports_in(node).values():
                home = self.resolve(imported.module, imported.attribute)
                if home is not None and home[1] is not None:
                    self._need(home[0], home[1], read)

    def _ran(self, module: str, statement: ast.stmt, read: _Read) -> bool:
        """Whether a function, or any method of a class, was entered; classes without methods always count."""
        ran = self._entered if read is _Read.RUN else self._executed
        functions = _functions_in(statement)
        return any(first_line(node) in ran.get(module, set()) for node in functions) or not functions

    def _names_at_import(self, source: ModuleSource, statement: ast.stmt) -> Iterator[str]:
        """Names that Python reads while it imports the module."""
        nodes: list[ast.AST] = [statement]
        if isinstance(statement, ast.ClassDef):
            nodes = [*statement.bases, *statement.keywords, *self.decorators(source, statement)]
            for inner in self.body_of(source.name, statement):
                nodes += _signature(inner) if is_definition(inner) else [inner]
        elif is_definition(statement):
            nodes = [*_signature(statement), *self.decorators(source, statement)]
        for name in names_in(*nodes):
            if self._knows(source, name):
                yield name

    def decorators(self, source: ModuleSource, statement: Any) -> list[ast.expr]:
        """Decorators that are kept: those of the model's packages that returned what they were given only register."""
        found = []
        for decorator in statement.decorator_list:
            name = decorator.func if isinstance(decorator, ast.Call) else decorator
            first = next((n.id for n in ast.walk(name) if isinstance(n, ast.Name)), "")
            imported = [source.imports_in(bound).get(first) for bound in source.binds.get(first, ())]
            own = any(self.resolve(one.module, one.attribute) for one in imported if one) or (
                first in source.binds and not any(imported)
            )
            if not (own and statement.name in self._plain.get(source.name, set())):
                found.append(decorator)
        return found

    def _bodies(self, module: str, statement: ast.stmt) -> Iterator[tuple[ast.stmt, _Read]]:
        """Function bodies that ran, and when."""
        functions = self.body_of(module, statement) if isinstance(statement, ast.ClassDef) else [statement]
        for function in functions:
            if isinstance(function, _FUNCTIONS):
                at_import = first_line(function) in self._imported.get(module, set())
                for inner in function.body:
                    yield inner, _Read.CALLED_BY_IMPORT if at_import else _Read.RUN
            elif isinstance(function, ast.ClassDef):
                yield from ((inner, _Read.RUN) for inner in function.body)

    def body_of(self, module: str, statement: ast.ClassDef) -> list[ast.stmt]:
        """A class without the methods that never ran."""
        methods = [node for node in statement.body if isinstance(node, _FUNCTIONS)]
        ran = {node.name for node in methods if first_line(node) in self._executed.get(module, set())}
        others = names_in(*(node for node in statement.body if not isinstance(node, _FUNCTIONS)))
        return [node for node in statement.body if not isinstance(node, _FUNCTIONS) or node.name in ran | others]

    # Writing

    def _text(self, module: str) -> str:
        source, kept = self._source(module), self._needed[module]
        used: set[str] = set()
        for statement in kept.statements:
            nodes = (
                [statement]
                if not isinstance(statement, ast.ClassDef)
                else [
                    *statement.bases,
                    *statement.keywords,
                    *self.decorators(source, statement),
                    *self.body_of(module, statement),
                ]
            )
            used |= names_in(*nodes)
        parts = ["".join(source.lines[: source.docstring_end()])]
        imports = []
        for statement in source.tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                imports += list(self._import_lines(source, statement, used))
        parts.append("".join(f"{line}\n" for line in dict.fromkeys(imports)))
        for statement in source.tree.body:
            if statement in kept.statements and not isinstance(statement, (ast.Import, ast.ImportFrom)):
                parts.append(self._statement_text(source, statement))
            elif statement in kept.stubs:
                parts.append(_stub(statement))
        return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"

    def _import_lines(self, source: ModuleSource, statement: ast.stmt, used: set[str]) -> Iterator[str]:
        for name, imported in source.imports_in(statement).items():
            if name == "*" and imported.module in self._files:
                for attribute in sorted(used & set(self._source(imported.module).binds) - set(source.binds)):
                    yield self._import_of(source.name, imported.module, attribute, attribute)
            elif imported.module == "__future__":
                yield f"from __future__ import {name}"
            elif name in used:
                yield self._import_of(source.name, imported.module, imported.attribute, name)

    def _import_of(self, module: str, target: str, attribute: str | None, name: str) -> str:
        home = self.resolve(target, attribute)
        if home is None:
            target, attribute = self._outside(target, attribute)
            renamed = f" as {name}" if name != (attribute or target) else ""
            return f"import {target}{renamed}" if attribute is None else f"from {target} import {attribute}{renamed}"
        place, found = self.home_of(home[0]), home[1]
        own = self.home_of(module).split(".")
        dots = "." * (len(own) + (1 if self._source(module).is_package and "." in module else 0))
        if found is None:
            parent, _, last = place.rpartition(".")
            return f"from {dots}{parent} import {last}" + (f" as {name}" if name != last else "")
        return f"from {dots}{place} import {found}" + (f" as {name}" if name != found else "")

    def _statement_text(self, source: ModuleSource, statement: ast.stmt) -> str:
        first, last = source.span(statement)
        left_out: set[int] = set()
        if is_definition(statement):
            kept = self.decorators(source, statement)
            for decorator in statement.decorator_list:  # type: ignore[attr-defined]
                if decorator not in kept:
                    left_out |= set(range(decorator.lineno, (decorator.end_lineno or decorator.lineno) + 1))
                    text = f"@{ast.unparse(decorator)} taken away"
                    self.dropped.append(Change(f"{self._place(source.name)}.py", text, "it only registers"))
        if isinstance(statement, ast.ClassDef):
            body = self.body_of(source.name, statement)
            for inner in statement.body:
                if inner not in body:
                    start, end = source.span(inner)
                    left_out |= set(range(start, end + 1))
        lines = {number: source.lines[number - 1] for number in range(first, last + 1) if number not in left_out}
        for node in ast.walk(statement):
            if isinstance(node, ast.ImportFrom) and node.lineno in lines:
                self._rewrite_import(source, node, lines)
        text = "".join(lines[number] for number in sorted(lines))
        if isinstance(statement, ast.ClassDef) and not body:
            text += "    pass\n"
        return text

    def _rewrite_import(self, source: ModuleSource, statement: ast.ImportFrom, lines: dict[int, str]) -> None:
        """An import inside a function, of the model's own packages."""
        if self.resolve(source.target_of(statement), None) is None:
            return
        indent = " " * statement.col_offset
        made = [
            self._import_of(source.name, source.target_of(statement), alias.name, alias.asname or alias.name)
            for alias in statement.names
            if self.resolve(source.target_of(statement), alias.name)
        ]
        for number in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
            lines[number] = ""
        lines[statement.lineno] = "".join(f"{indent}{line}\n" for line in made) or f"{indent}pass\n"


def _functions_in(statement: ast.stmt) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(statement) if isinstance(node, _FUNCTIONS)]


def _signature(node: Any) -> Sequence[ast.AST]:
    """Defaults, annotations and decorators of a function: what Python reads where it defines it."""
    if isinstance(node, ast.ClassDef):
        return [node]
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    annotations = [argument.annotation for argument in every if argument is not None]
    found = [*arguments.defaults, *arguments.kw_defaults, *annotations, node.returns, *node.decorator_list]
    return [one for one in found if one is not None]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _stub(statement: ast.stmt) -> str:
    if isinstance(statement, ast.ClassDef):
        return f'class {statement.name}:\n    """Left out of the port: the model never builds one."""\n'
    definition: Definition = statement  # type: ignore[assignment]
    return f'def {definition.name}(*args, **kwargs):\n    raise NotImplementedError("{_LEFT_OUT}")\n'
