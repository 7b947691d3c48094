"""The files of a selection: what is kept of every module, in the order of the source, still in torch."""

import ast
from collections.abc import Iterator
from pathlib import Path

from twinalign.drafting.module_source import Definition, Import, is_definition, names_in
from twinalign.drafting.rewriting import Change
from twinalign.drafting.selection import IMPORTS, Selection, qualified_name

_NEVER_CALLED = "left out of the port: the model never calls it"
_NO_DIFFERENCE = "Left out of the port: the model's outputs, gradients and first weights are the same without it."
_NO_PROMOTION = "paddle raises where torch makes one type of whole numbers, truth values and numbers"
_FUTURE = "from __future__ import annotations"


def files_of(selection: Selection) -> tuple[dict[str, str], list[Change]]:
    """Path in the port's package → source, `__init__.py` where one must be, and what was changed of the sources."""
    found, dropped = {}, []
    for name in sorted(selection.needed):
        module = _Module(selection, name)
        path = f"{selection.place(name)}.py"
        found[path] = module.text()
        dropped += module.dropped
        if selection.source(name).has_casts:
            dropped.append(Change(path, "casts of tensors that meet another type", _NO_PROMOTION))
    for path in list(found):
        for folder in Path(path).parents:
            found.setdefault(str(folder / "__init__.py"), "")
    return found, dropped


class _Module:
    """One file."""

    def __init__(self, selection: Selection, name: str) -> None:
        self._selection = selection
        self._source = selection.source(name)
        self._kept = selection.needed[name]
        self.dropped: list[Change] = []

    def text(self) -> str:
        source, kept = self._source, self._kept
        used, annotated, unions = self._names_read()
        used |= kept.attributes
        imports = []
        for statement in source.tree.body:
            if isinstance(statement, IMPORTS):
                imports += list(self._import_lines(statement, used, annotated))
        unbound = {name for name in annotated - used if self._is_own(name) and not self._is_kept(source.name, name)}
        if (unbound or unions) and _FUTURE not in imports:
            imports.insert(0, _FUTURE)  # nothing reads the annotations then; paddle.device | None is none
        parts = [
            "".join(source.lines[: source.docstring_end()]),
            "".join(f"{line}\n" for line in dict.fromkeys(imports)),
        ]
        for statement in source.tree.body:
            if statement in kept.statements and not isinstance(statement, IMPORTS):
                parts.append(self._statement_text(statement))
            elif statement in kept.stubs:
                parts.append(_stub(statement))
        return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"

    def _names_read(self) -> tuple[set[str], set[str], bool]:
        """Names that what is kept reads, those that its functions' annotations name, and whether these have a `|`."""
        read: list[ast.AST] = []
        annotations: list[ast.AST] = []
        for statement in self._kept.statements:
            if not is_definition(statement):
                read.append(statement)
                continue
            read += self._selection.decorators(self._source, statement)
            inner: list[ast.stmt] = [statement]
            of = statement if isinstance(statement, ast.ClassDef) else None
            if of is not None:
                read += [*of.bases, *of.keywords]
                inner = self._selection.body_of(self._source.name, of)
            for node in inner:
                if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    read.append(node)
                    continue
                read += self._selection.defaults_of(self._source.name, node, of)
                if of is not None:
                    read += self._selection.decorators(self._source, node, of)
                if not self._is_emptied(node, of):
                    read += node.body
                    annotations += _annotations(node)
        unions = any(isinstance(inner, ast.BitOr) for node in annotations for inner in ast.walk(node))
        return names_in(*read), names_in(*annotations), unions

    def _is_emptied(self, node: ast.stmt, of: ast.ClassDef | None) -> bool:
        return (self._source.name, qualified_name(node, of)) in self._selection.cuts.functions

    def _is_own(self, name: str) -> bool:
        """Whether a name stands for something of the model's own packages."""
        source = self._source
        imported = [one for bound in source.binds.get(name, ()) if (one := source.imports_in(bound).get(name))]
        return any(self._selection.resolve(one.module, one.attribute) for one in imported) or (
            name in source.binds and not imported
        )

    def _is_kept(self, module: str, name: str | None) -> bool:
        """Whether a name of a module of the packages is bound in the port."""
        home = self._selection.resolve(module, name)
        if home is None or home[0] not in self._selection.needed:
            return False
        kept = self._selection.needed[home[0]]
        bound = self._selection.source(home[0]).binds.get(home[1] or "", ())
        return home[1] is None or any(one in kept.statements or one in kept.stubs for one in bound)

    def _import_lines(self, statement: ast.stmt, used: set[str], annotated: set[str]) -> Iterator[str]:
        source = self._source
        for name, imported in source.imports_in(statement).items():
            if name == "*" and imported.module in self._selection.modules:
                binds = self._selection.source(imported.module).binds
                for attribute in sorted(used & set(binds) - set(source.binds)):
                    yield self._import_of(imported.module, attribute, attribute)
            elif imported.module == "__future__":
                yield f"from __future__ import {name}"
            elif name in used or (name in annotated and self._can_be_imported(imported)):
                yield self._import_of(imported.module, imported.attribute, name)

    def _can_be_imported(self, imported: Import) -> bool:
        module, attribute = imported.module, imported.attribute
        return self._selection.resolve(module, attribute) is None or self._is_kept(module, attribute)

    def _import_of(self, target: str, attribute: str | None, name: str) -> str:
        home = self._selection.resolve(target, attribute)
        if home is None:
            target, attribute = self._selection.outside(target, attribute)
            renamed = f" as {name}" if name != (attribute or target) else ""
            return f"import {target}{renamed}" if attribute is None else f"from {target} import {attribute}{renamed}"
        place, found = self._selection.home_of(home[0]), home[1]
        module = self._source.name
        own = self._selection.home_of(module).split(".")
        dots = "." * (len(own) + (1 if self._source.is_package and "." in module else 0))
        if found is None:
            parent, _, last = place.rpartition(".")
            return f"from {dots}{parent} import {last}" + (f" as {name}" if name != last else "")
        return f"from {dots}{place} import {found}" + (f" as {name}" if name != found else "")

    def _statement_text(self, statement: ast.stmt) -> str:
        source = self._source
        first, last = source.span(statement)
        lines: dict[int, str] = {number: source.lines[number - 1] for number in range(first, last + 1)}
        if is_definition(statement):
            self._drop_decorators(statement, None, lines)
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and self._is_emptied(statement, None):
            self._empty(statement, lines)
        body: list[ast.stmt] = []
        if isinstance(statement, ast.ClassDef):
            body = self._selection.body_of(source.name, statement)
            for inner in statement.body:
                if inner not in body:
                    _remove(*source.span(inner), lines)
                elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    self._drop_decorators(inner, statement, lines)
                    if self._is_emptied(inner, statement):
                        self._empty(inner, lines)
        for node in ast.walk(statement):
            if isinstance(node, ast.ImportFrom) and node.lineno in lines:
                self._rewrite_import(node, lines)
        text = "".join(lines[number] for number in sorted(lines))
        return text + ("    pass\n" if isinstance(statement, ast.ClassDef) and not body else "")

    def _drop_decorators(self, node: ast.stmt, of: ast.ClassDef | None, lines: dict[int, str]) -> None:
        kept = self._selection.decorators(self._source, node, of)
        for decorator in node.decorator_list:  # type: ignore[attr-defined]
            if decorator in kept:
                continue
            _remove(decorator.lineno, decorator.end_lineno, lines)
            if not self._is_emptied(node, of):
                cut = self._selection.name_of_decorator(self._source, decorator) in self._selection.cuts.decorators
                why = (
                    "the model's outputs, gradients and first weights are the same without"
                    if cut
                    else "it only registers"
                )
                path = f"{self._selection.place(self._source.name)}.py"
                self.dropped.append(Change(path, f"@{ast.unparse(decorator)} taken away", why))

    def _empty(self, node: Definition, lines: dict[int, str]) -> None:
        """Leave only what says that it is left out."""
        indent = " " * node.col_offset
        _remove(node.lineno, node.end_lineno or node.lineno, lines)
        says = f'{indent}    """{_NO_DIFFERENCE}"""'
        lines[node.lineno] = f"{indent}def {node.name}(*args, **kwargs):\n{says}\n"

    def _rewrite_import(self, statement: ast.ImportFrom, lines: dict[int, str]) -> None:
        """An import inside a function, of the model's own packages."""
        target = self._source.target_of(statement)
        if self._selection.resolve(target, None) is None:
            return
        indent = " " * statement.col_offset
        made = [
            self._import_of(target, alias.name, alias.asname or alias.name)
            for alias in statement.names
            if self._selection.resolve(target, alias.name)
        ]
        _remove(statement.lineno, statement.end_lineno or statement.lineno, lines)
        lines[statement.lineno] = "".join(f"{indent}{line}\n" for line in made) or f"{indent}pass\n"


def _remove(first: int, last: int, lines: dict[int, str]) -> None:
    for number in range(first, last + 1):
        lines.pop(number, None)


def _annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    annotations = [argument.annotation for argument in every if argument is not None]
    return [one for one in [*annotations, node.returns] if one is not None]


def _stub(statement: ast.stmt) -> str:
    if isinstance(statement, ast.ClassDef):
        return f'class {statement.name}:\n    """Left out of the port: the model never builds one."""\n'
    definition: Definition = statement  # type: ignore[assignment]
    return f'def {definition.name}(*args, **kwargs):\n    raise NotImplementedError("{_NEVER_CALLED}")\n'
