"""The part of the reference's sources that its model needs, as a package of its own, still in torch."""

import ast
import dataclasses
import enum
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from twinalign.drafting.module_source import ModuleSource, attributes_of, first_line, is_definition, names_in
from twinalign.drafting.promotions import Promotion

_BINDING = ("property", "classmethod", "staticmethod")
"""Decorators that say how a method is called."""


class _Read(enum.Enum):
    """When Python reads a name."""

    IMPORT = "while it imports the module"
    CALLED_BY_IMPORT = "in a function that an import calls"
    RUN = "in a function that ran with the model"


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)


@dataclasses.dataclass(frozen=True)
class Cuts:
    """What is left out although it ran: the model does the same without it."""

    decorators: frozenset[str] = frozenset()
    """Full names."""
    functions: frozenset[tuple[str, str]] = frozenset()
    """Modules and names, `Class.method` for a method: they return None at once."""
    ran: Mapping[str, Collection[int]] = dataclasses.field(default_factory=dict)
    """Module → lines that ran; branches that were never taken are left out."""


@dataclasses.dataclass
class Needed:
    """What is kept of a module."""

    statements: set[ast.stmt] = dataclasses.field(default_factory=set)
    stubs: set[ast.stmt] = dataclasses.field(default_factory=set)
    modules: set[str] = dataclasses.field(default_factory=set)
    """Names of modules of the package that are used as modules."""
    attributes: set[str] = dataclasses.field(default_factory=set)
    """Names that other modules read as attributes of this one; it may import them itself."""


_NOTHING = Cuts()


class Selection:
    """Follows the names that a model needs, from the class that was built, through its packages."""

    def __init__(self, observed: Mapping[str, Any], cuts: Cuts = _NOTHING) -> None:
        self.cuts = cuts
        self.modules: dict[str, str] = observed["modules"]
        self._packages = {name.partition(".")[0] for name in self.modules}
        self._imported = {name: set(lines) for name, lines in observed["imported"].items()}
        self._entered = {name: set(lines) for name, lines in observed["entered"].items()}
        ran = self._imported.keys() | self._entered.keys()
        self._executed = {name: self._imported.get(name, set()) | self._entered.get(name, set()) for name in ran}
        self._plain = {name: set(names) for name, names in observed["plain"].items()}
        self._abstract = {name: set(methods) for name, methods in observed["abstract"].items()}
        self._homes: dict[str, dict[str, str]] = observed["homes"]
        self._promoted: dict[str, list[Promotion]] = observed["promoted"]
        self._sources: dict[str, ModuleSource] = {}
        self.needed: dict[str, Needed] = {}
        self._done: set[tuple[str, str, _Read]] = set()
        self._registered: set[tuple[str, str]] = set()
        """Modules and names of definitions whose decorators put them where code that is kept looks them up."""
        self.roots: Mapping[str, Any] = observed["roots"]
        for module, name in self.named:
            if module in self.modules:
                self._need(module, name.partition(".")[0], _Read.IMPORT)
        self.registering = [module for module in sorted(self._entered) if self._keep_registrations(module)]
        while found := [module for module in sorted(self._entered) if self._keep_filled(module)]:
            self.registering = sorted({*self.registering, *found})

    @property
    def named(self) -> list[tuple[str, str]]:
        """Modules and names that building the model and its parts names."""
        return [(module, name) for root in self.roots.values() for module, name in root["imports"]]

    def _keep_registrations(self, module: str) -> bool:
        """Keep the calls of a module's top level that hand a class or function that ran to one of the packages'."""
        source = self.source(module)
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

    def _keep_filled(self, module: str) -> bool:
        """Keep what puts a definition that ran into a variable that is kept; whether there was more of it."""
        source, found = self.source(module), False
        for statement in source.tree.body:
            kept = self.needed.get(module, Needed()).statements
            if is_definition(statement):
                key = (module, qualified_name(statement, None))
                decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
                if key in self._registered or not self._definition_ran(module, statement):
                    continue
                if not any(self._fills_kept(source, decorator) for decorator in decorators):
                    continue
                self._registered.add(key)
                kept.discard(statement)  # its decorators' names are to be followed as well
            elif statement in kept or not self._fills_what_is_kept(source, statement):
                continue
            self._keep(source, statement, _Read.IMPORT)
            found = True
        return found

    def _fills_what_is_kept(self, source: ModuleSource, statement: ast.stmt) -> bool:
        """Whether `TABLE[…] = …`, or a call of its method, hands on a definition that ran, or none of its own.

        So does `Class.method = function` with one that ran, whatever the class.
        """
        match statement:
            case ast.Assign([ast.Attribute()], ast.Name() as value):
                return self._was_entered(source, value)
            case ast.Assign([ast.Subscript(ast.Name() as table)], value):
                given = [value]
            case ast.Expr(ast.Call(ast.Attribute(ast.Name() as table), arguments, keywords)):
                given = [*arguments, *(keyword.value for keyword in keywords)]
            case _:
                return False
        names = [node for one in given for node in ast.walk(one) if isinstance(node, ast.Name)]
        own = [name for name in names if self._home_in(source, name)]
        return self._is_kept_variable(source.name, table.id) and (
            not own or any(self._was_entered(source, name) for name in own)
        )

    def _fills_kept(self, source: ModuleSource, decorator: ast.expr) -> bool:
        """Whether a decorator is of a variable that is kept, or a function that names one."""
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        for name in names_in(called):
            if self._is_kept_variable(source.name, name):
                return True
            home = self.resolve(source.name, name)
            if home is None or home[1] is None:
                continue
            functions = filter(is_definition, self.source(home[0]).binds.get(home[1], ()))
            if any(self._is_kept_variable(home[0], inner) for one in functions for inner in names_in(one)):
                return True
        return False

    def _is_kept_variable(self, module: str, name: str) -> bool:
        home = self.resolve(module, name)
        if home is None or home[1] is None or home[0] not in self.needed:
            return False
        bound = self.source(home[0]).binds.get(home[1], ())
        return any(one in self.needed[home[0]].statements and not is_definition(one) for one in bound)

    def _home_in(self, source: ModuleSource, node: ast.expr) -> tuple[str, str | None] | None:
        return self.resolve(source.name, node.id) if isinstance(node, ast.Name) else None

    def _was_entered(self, source: ModuleSource, node: ast.expr) -> bool:
        home = self._home_in(source, node)
        if home is None or home[1] is None:
            return False
        return any(self._definition_ran(home[0], one) for one in self.source(home[0]).binds[home[1]])

    def _definition_ran(self, module: str, statement: ast.stmt) -> bool:
        """Whether it is a function, or a class with a method, that was entered when the model was built and run."""
        lines = self._entered.get(module, set())
        return is_definition(statement) and any(first_line(one) in lines for one in _functions_in(statement))

    def source(self, name: str) -> ModuleSource:
        if name not in self._sources:
            self._sources[name] = ModuleSource(
                name, Path(self.modules[name]), self._promoted.get(name, ()), self.cuts.ran.get(name)
            )
        return self._sources[name]

    def home_of(self, module: str) -> str:
        """Name of a module below the port's package: `models.levit` of `timm.models.levit`."""
        return self.place(module).replace("/", ".").removesuffix(".__init__")

    def place(self, module: str) -> str:
        package, _, rest = module.partition(".")
        steps = rest.split(".") if rest else [package]
        if len({name.partition(".")[0] for name in self.needed}) > 1 and rest:
            steps = [package, *steps]
        if rest and self.source(module).is_package:
            steps.append("__init__")
        return "/".join(steps)

    # Following names

    def _need(self, module: str, name: str, read: _Read) -> None:
        """Keep what binds a name; what is only named in code that ran may be a stub where it did not run itself."""
        if (module, name, read) in self._done:
            return
        self._done.add((module, name, read))
        source = self.source(module)
        if name not in source.binds:
            if f"{module}.{name}" in self.modules:
                self.needed.setdefault(f"{module}.{name}", Needed())
            for target in self.starred(source):
                if name in self.source(target).binds:
                    self._need(target, name, read)
            return
        for statement in source.binds[name]:
            imported = source.imports_in(statement).get(name) if not is_definition(statement) else None
            if imported is not None and isinstance(statement, IMPORTS):
                home = self.resolve(imported.module, imported.attribute)
                if home is not None:
                    self._need_imported(module, name, *home, read)
                    continue
            self._keep(source, statement, read)

    def _need_imported(self, module: str, name: str, home: str, attribute: str | None, read: _Read) -> None:
        kept = self.needed.setdefault(module, Needed())
        if attribute is not None:
            self._need(home, attribute, read)
            return
        kept.modules.add(home)
        attributes = self.needed.setdefault(home, Needed()).attributes
        for statement in list(self.source(module).tree.body):
            for used in attributes_of(statement, name):
                attributes.add(used)
                self._need(home, used, read)

    def resolve(self, module: str, attribute: str | None) -> tuple[str, str | None] | None:
        """Where a name of the model's own packages is defined (module, name or None for a module); else None."""
        if module not in self.modules:
            return None
        if attribute is None:
            return module, None
        source = self.source(module)
        home = self._homes.get(module, {}).get(attribute)
        if home is not None and not any(isinstance(s, IMPORTS) for s in source.binds.get(attribute, ())):
            return home, attribute
        submodule = f"{module}.{attribute}"
        for statement in source.binds.get(attribute, ()):
            imported = source.imports_in(statement).get(attribute)
            if isinstance(statement, IMPORTS) and imported is not None:
                if (imported.module, imported.attribute) == (module, attribute):  # from package import submodule
                    return (submodule, None) if submodule in self.modules else None
                return self.resolve(imported.module, imported.attribute)
        if attribute in source.binds:
            return module, attribute
        if submodule in self.modules:
            return submodule, None
        homes = (self.resolve(target, attribute) for target in self.starred(source))
        return next((home for home in homes if home is not None), None)

    def outside(self, module: str, attribute: str | None) -> tuple[str, str | None]:
        """Module and name outside of the packages that a name stands for, which others of the packages may pass on."""
        if module not in self.modules or attribute is None:
            return module, attribute
        source = self.source(module)
        for statement in source.binds.get(attribute, ()):
            imported = source.imports_in(statement).get(attribute)
            if imported is not None:
                return self.outside(imported.module, imported.attribute)
        found = [
            self.outside(target, attribute)
            for target in self.starred(source)
            if self._knows(self.source(target), attribute)
        ]
        return found[0] if found else (module, attribute)

    def starred(self, source: ModuleSource) -> list[str]:
        """Modules of the model's own packages of which everything is imported."""
        stars = [s for s in source.tree.body if isinstance(s, ast.ImportFrom) and s.names[0].name == "*"]
        return [target for target in map(source.target_of, stars) if target in self.modules]

    def _knows(self, source: ModuleSource, name: str) -> bool:
        return name in source.binds or any(name in self.source(target).binds for target in self.starred(source))

    def _keep(self, source: ModuleSource, statement: ast.stmt, read: _Read) -> None:
        kept = self.needed.setdefault(source.name, Needed())
        if statement in kept.statements:
            return
        as_stub = isinstance(statement, _FUNCTIONS) or (is_definition(statement) and read is not _Read.IMPORT)
        if as_stub and not self._ran(source.name, statement, read):
            kept.stubs.add(statement)
            return
        kept.stubs.discard(statement)
        kept.statements.add(statement)
        for name in self._names_at_import(source, statement):
            self._need(source.name, name, _Read.IMPORT)
        if not is_definition(statement):  # try: from … import …
            self._need_definitions(source, statement, _Read.IMPORT)
        for node, read in self._bodies(source.name, statement):
            for name in names_in(node):
                if self._knows(source, name):
                    self._need(source.name, name, read)
            self._need_definitions(source, node, read)

    def _need_definitions(self, source: ModuleSource, node: ast.AST, read: _Read) -> None:
        """Keep the definitions of the model's own packages that code imports."""
        for imported in source.imports_in(node).values():
            home = self.resolve(imported.module, imported.attribute)
            if home is not None and home[1] is not None:
                self._need(home[0], home[1], read)

    def _ran(self, module: str, statement: ast.stmt, read: _Read) -> bool:
        """Whether a function, or any method of a class, was entered; classes without methods always count."""
        ran = self._entered if read is _Read.RUN else self._executed  # what an import hands on may be called later
        functions = _functions_in(statement)
        return any(first_line(node) in ran.get(module, set()) for node in functions) or not functions

    def _names_at_import(self, source: ModuleSource, statement: ast.stmt) -> Iterator[str]:
        """Names that Python reads while it imports the module."""
        nodes: list[ast.AST] = [statement]
        if isinstance(statement, ast.ClassDef):
            nodes = [*statement.bases, *statement.keywords, *self.decorators(source, statement)]
            for inner in self.body_of(source.name, statement):
                decorators = self.decorators(source, inner, statement) if isinstance(inner, _FUNCTIONS) else []
                nodes += [*self.defaults_of(source.name, inner, statement), *decorators]
        elif is_definition(statement):
            nodes = [*self.defaults_of(source.name, statement), *self.decorators(source, statement)]
        for name in names_in(*nodes):
            if self._knows(source, name):
                yield name

    def decorators(self, source: ModuleSource, statement: Any, of: ast.ClassDef | None = None) -> list[ast.expr]:
        """Decorators that are kept: those of the model's packages that returned what they were given only register."""
        name = qualified_name(statement, of)
        plain = name in self._plain.get(source.name, set())
        found = []
        for decorator in statement.decorator_list:
            called = self.name_of_decorator(source, decorator)
            own = called.partition(".")[0] in self._packages
            emptied = (source.name, name) in self.cuts.functions and called not in _BINDING
            only_registers = own and plain and (source.name, name) not in self._registered
            if not only_registers and not emptied and called not in self.cuts.decorators:
                found.append(decorator)
        return found

    def name_of_decorator(self, source: ModuleSource, decorator: ast.expr) -> str:
        """Full name of what decorates: `transformers.utils.auto_docstring`; as written for a name that is built in."""
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        first, _, rest = ast.unparse(called).partition(".")
        if first not in source.binds:
            return ".".join(filter(None, [first, rest]))
        imported = [one for bound in source.binds[first] if (one := source.imports_in(bound).get(first))]
        module, name = (imported[0].module, imported[0].attribute) if imported else (source.name, first)
        home = self.resolve(module, name) or (module, name)
        return ".".join(filter(None, [*home, rest]))

    def defaults_of(self, module: str, node: ast.stmt, of: ast.ClassDef | None = None) -> list[ast.AST]:
        """What Python reads where it defines a function beside its decorators; annotations need not be kept."""
        if not isinstance(node, _FUNCTIONS):
            return [node]
        if (module, qualified_name(node, of)) in self.cuts.functions:
            return []
        return [one for one in [*node.args.defaults, *node.args.kw_defaults] if one is not None]

    def _bodies(self, module: str, statement: ast.stmt) -> Iterator[tuple[ast.stmt, _Read]]:
        """Function bodies that ran, and when."""
        functions = self.body_of(module, statement) if isinstance(statement, ast.ClassDef) else [statement]
        for function in functions:
            if isinstance(function, _FUNCTIONS):
                of = statement if isinstance(statement, ast.ClassDef) else None
                if (module, qualified_name(function, of)) in self.cuts.functions:
                    continue
                at_import = first_line(function) in self._imported.get(module, set())
                for inner in function.body:
                    yield inner, _Read.CALLED_BY_IMPORT if at_import else _Read.RUN
            elif isinstance(function, ast.ClassDef):
                yield from ((inner, _Read.RUN) for inner in function.body)

    def body_of(self, module: str, statement: ast.ClassDef) -> list[ast.stmt]:
        """A class without the methods that never ran, but with those that its objects must have."""
        abstract = self._abstract.get(module, set())
        methods = [node for node in statement.body if isinstance(node, _FUNCTIONS)]
        executed = self._executed.get(module, set())
        ran = {n.name for n in methods if first_line(n) in executed or qualified_name(n, statement) in abstract}
        others = names_in(*(node for node in statement.body if not isinstance(node, _FUNCTIONS)))
        return [node for node in statement.body if not isinstance(node, _FUNCTIONS) or node.name in ran | others]


def _functions_in(statement: ast.stmt) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(statement) if isinstance(node, _FUNCTIONS)]


def qualified_name(definition: ast.stmt, of: ast.ClassDef | None) -> str:
    """`function`, `Class` or `Class.method`."""
    name = str(getattr(definition, "name", ""))
    return f"{of.name}.{name}" if of is not None else name
