"""What a torch model needs of its sources, seen while it is built and run; called in the reference's process."""

import ast
import contextlib
import importlib.metadata
import inspect
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends import load_backend
from twinalign.conversion.model_factory import load_factory
from twinalign.drafting.construction_text import FRAMEWORKS, root_of_model, root_of_part
from twinalign.drafting.module_source import bound_by
from twinalign.drafting.one_pass import Inputs, draws, is_scheduled, run_once, shares
from twinalign.drafting.parts import load_part
from twinalign.errors import InputError

_IMPORTS_TORCH = re.compile(r"^\s*(?:import|from)\b[^\n#]*\btorch\b", re.MULTILINE)
_DECORATED_CLASS = re.compile(r"^@(?:.|\n(?=[ \t@)]))*\nclass ", re.MULTILINE)
_TORCH = str(Path(np.__file__).parent.parent / "torch")


def observe_model(reference: str, inputs: Inputs, parts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Build the model that `module:factory(…)` names, run it in eval and training mode, backward included, and say

    - `roots`: of the model, and of each of the `parts` (`parts.KINDS`): the class that was built (module and name), the
      source of its arguments, and what these import, or, where the arguments have no source, the factory itself;
    - `shares`: names of the inputs of the model and of the loss, and whether the loss takes them by name;
    - `scheduled`: whether the optimizer comes with a schedule;
    - `modules`: name → file of every module with code of the model's own packages, those that the run never entered
      included;
    - `imported`: module → first lines of the functions that ran while the model's sources were imported;
    - `entered`: the same of those that ran when the model was built and run;
    - `handled`: the same of those of them that were handed a tensor, or returned one;
    - `plain`: module → names of its functions, classes and methods (`Class.method`) that are what their `def` or
      `class` made, whatever the decorators, and have no attributes beside those;
    - `made`: module → names of methods that a decorator made into something else than a function, a descriptor say;
    - `abstract`: module → names of methods (`Class.method`) without which Python would not make an object of the class;
    - `homes`: module → name → module of the same packages that defines the class or function of that name, which a
      package that imports lazily binds nowhere;
    - `promoted`: module → what torch does otherwise than paddle, as `promotions.Promotion` has it;
    - `draws`: whether its training draws random numbers beside those of dropout.

    `inputs` are names, shapes, dtypes and, for integers, bounds. Raises InputError if the model does not run on them.
    """
    from twinalign.backends.torch.reference_only.promotion import Promotions, leave_scripts_in_python

    backend = load_backend("torch")
    leave_scripts_in_python()
    sys.dont_write_bytecode = False  # as forks have it, each process of the port would compile the packages anew
    imported: set[types.CodeType] = set()
    with _profiled(lambda frame, event, value: imported.add(frame.f_code)):
        factory, arguments = load_factory(reference)
        builders = {kind: load_part(kind, text) for kind, text in (parts or {}).items()}
    watched = _Watched(backend, imported)
    backend.set_seed(0)
    with Promotions() as promotions, _profiled(watched.note):
        model = factory(**arguments)
        factory(**arguments)  # a class may keep what its first object found out
        list(run_once(backend, model, inputs, builders))
    if not backend.is_model(model):
        raise InputError(f"--ref {reference}: it made a {type(model).__name__}, which is not a torch.nn.Module")
    drawing = draws(backend, model, inputs, builders)
    if drawing and "train" in builders:
        raise InputError("--train: the model draws random numbers in training, and no two frameworks draw the same")
    roots = {"model": root_of_model(model, watched.arguments_of, watched.returned)}
    roots |= {kind: root_of_part(kind, text) for kind, text in (parts or {}).items()}
    packages = _own_packages(watched.entered, [module for root in roots.values() for module, _ in root["imports"]])
    modules = _modules_of(packages | _needing_torch())
    of_file = {file: name for name, file in modules.items() if name.partition(".")[0] in packages}
    return {
        "roots": roots,
        "shares": shares(model, builders, inputs),
        "scheduled": "optimizer" in builders and is_scheduled(model, builders["optimizer"]),
        "modules": modules,
        "imported": _first_lines(imported, of_file),
        "entered": _first_lines(watched.entered, of_file),
        "handled": _first_lines(watched.handled, of_file),
        **_held_by(modules),
        "promoted": {of_file[file]: found for file, found in promotions.in_order().items() if file in of_file},
        "draws": drawing,
    }


def observe_lines(
    reference: str, inputs: Inputs, parts: Mapping[str, str], files: Sequence[str]
) -> dict[str, list[int]]:
    """File → lines that ran while the model was imported, built and run with its parts.

    To be called in a process that has not imported it.
    """
    from twinalign.backends.torch.reference_only.promotion import leave_scripts_in_python

    backend = load_backend("torch")
    leave_scripts_in_python()
    ran: dict[str, set[int]] = {file: set() for file in files}

    def trace(frame: types.FrameType, event: str, value: Any) -> Any:
        lines = ran.get(frame.f_code.co_filename)
        if lines is None:
            return None

        def local(frame: types.FrameType, event: str, value: Any) -> Any:
            lines.add(frame.f_lineno)
            return local

        return local(frame, event, value)

    sys.settrace(trace)
    try:
        factory, arguments = load_factory(reference)
        builders = {kind: load_part(kind, text) for kind, text in parts.items()}
        backend.set_seed(0)
        models = [factory(**arguments) for _ in range(2)]  # a class may keep what its first object found out
        for _ in run_once(backend, models[0], inputs, builders):
            pass
    finally:
        sys.settrace(None)
    return {file: sorted(lines) for file, lines in ran.items()}


class _Watched:
    """What a profiler notes while a model is built and run.

    Attributes:
        imported: functions that ran while a module was imported.
        entered: the others that ran.
        handled: those of all that were handed a tensor, or returned one.
        returned: models that a function of their module returned, with this function and its arguments.
    """

    def __init__(self, backend: Any, imported: set[types.CodeType]) -> None:
        self._backend = backend
        self.imported = imported
        self.entered: set[types.CodeType] = set()
        self.handled: set[types.CodeType] = set()
        self.returned: list[tuple[Any, Any, dict[str, Any]]] = []
        self._built: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._importing: list[types.CodeType] = []

    def arguments_of(self, model: Any) -> dict[str, Any] | None:
        """What a model's constructor was given, by name; None if none of its own ran."""
        return self._built[id(model)][1] if id(model) in self._built else None

    def note(self, frame: types.FrameType, event: str, value: Any) -> None:
        """Take one event of `sys.setprofile`."""
        code = frame.f_code
        if code.co_name == "<module>" and event in ("call", "return"):  # a factory may import what it builds
            self._importing.append(code) if event == "call" else self._importing.pop()
        if self._importing:
            self.imported.add(code)
        elif event == "call":
            self._note_handled(code, lambda: list(_arguments_of(code, frame.f_locals, method=False).values()))
            self.entered.add(code)
            if code.co_name == "__init__" and code.co_argcount:
                self._note_built(code, frame.f_locals)
        elif event == "return":
            if self._backend.is_model(value) and not code.co_name.startswith("<"):
                made_by = frame.f_globals.get(code.co_name)
                if getattr(inspect.unwrap(made_by) if callable(made_by) else None, "__code__", None) is code:
                    self.returned.append((value, made_by, _arguments_of(code, frame.f_locals, method=False)))
            self._note_handled(code, lambda: [value])

    def _note_handled(self, code: types.CodeType, values: Callable[[], list[Any]]) -> None:
        known = code in self.handled or code.co_filename.startswith(_TORCH)
        if not known and _holds_tensor(self._backend, values()):
            self.handled.add(code)

    def _note_built(self, code: types.CodeType, values: dict[str, Any]) -> None:
        made = values.get(code.co_varnames[0])
        if id(made) not in self._built and self._backend.is_model(made):
            # A constructor may empty a list that it was given.
            self._built[id(made)] = made, {name: _kept(one) for name, one in _arguments_of(code, values).items()}


@contextlib.contextmanager
def _profiled(note: Callable[[types.FrameType, str, Any], Any]) -> Iterator[None]:
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def _holds_tensor(backend: Any, value: Any) -> bool:
    """Whether it is a tensor or Python's own containers have one; the methods of other objects are not called."""
    if type(value) is dict:
        return any(_holds_tensor(backend, item) for item in value.values())
    if type(value) in (list, tuple):
        return any(_holds_tensor(backend, item) for item in value)
    return bool(backend.is_tensor(value))


def _kept(value: Any) -> Any:
    """A copy of the containers in a value."""
    if type(value) in (list, tuple, set):
        return type(value)(map(_kept, value))
    return {key: _kept(item) for key, item in value.items()} if type(value) is dict else value


def _arguments_of(code: types.CodeType, values: dict[str, Any], *, method: bool = True) -> dict[str, Any]:
    """Arguments of a function by name, without a method's first; those of `*args`, and those before them, under `*`."""
    names = code.co_varnames
    count = code.co_argcount + code.co_kwonlyargcount
    found = {name: values[name] for name in names[method:count] if name in values}
    if code.co_flags & inspect.CO_VARARGS:
        if more := values.get(names[count], ()):
            found["*"] = (*(found.pop(name) for name in names[method : code.co_argcount] if name in found), *more)
        count += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        found.update(values.get(names[count], {}))
    return found


def _own_packages(entered: set[types.CodeType], named: Iterable[str]) -> set[str]:
    """Packages of the modules `named`, and those that were entered and that import torch; no standard library."""
    library = sysconfig.get_paths()["stdlib"]
    files = {str(getattr(module, "__file__", None)): name for name, module in list(sys.modules.items())}
    packages = {name.partition(".")[0] for name in named} - {*FRAMEWORKS, *sys.stdlib_module_names}
    for file in {code.co_filename for code in entered} & set(files):
        package = files[file].partition(".")[0]
        outside = not file.startswith(library) or "site-packages" in file
        if outside and package not in FRAMEWORKS and _IMPORTS_TORCH.search(Path(file).read_text("utf-8", "replace")):
            packages.add(package)
    return packages


def _modules_of(packages: set[str]) -> dict[str, str]:
    """Modules of these packages that are imported, and their files."""
    return {
        name: str(module.__file__)
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] in packages and str(getattr(module, "__file__", "")).endswith(".py")
    }


def _held_by(modules: Mapping[str, str]) -> dict[str, Any]:
    """What the names of each module stand for."""
    return {
        "plain": {name: _plain_names(sys.modules[name]) for name in modules},
        "made": {name: made for name in modules if (made := _made_by_decorators(sys.modules[name]))},
        "abstract": {name: found for name in modules if (found := _implementing(sys.modules[name]))},
        "homes": {name: homes for name in modules if (homes := _homes(sys.modules[name], modules))},
    }


def _first_lines(codes: set[types.CodeType], of_file: dict[str, str]) -> dict[str, list[int]]:
    found: dict[str, set[int]] = {}
    for code in codes:
        if code.co_filename in of_file:
            found.setdefault(of_file[code.co_filename], set()).add(code.co_firstlineno)
    return {name: sorted(lines) for name, lines in found.items()}


def _needing_torch() -> set[str]:
    """Packages that are imported and whose distributions require torch: their names may be named by the model's."""
    loaded = {name.partition(".")[0] for name in sys.modules} - set(FRAMEWORKS)
    return {
        name
        for name, distributions in importlib.metadata.packages_distributions().items()
        if name in loaded
        and any(
            requirement.split(";")[0].strip().startswith("torch") and "extra" not in requirement
            for distribution in distributions
            for requirement in importlib.metadata.requires(distribution) or ()
        )
    }


def _plain_names(module: types.ModuleType) -> list[str]:
    found = []
    written = _attributes_as_written(module)
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, type) and value.__qualname__ == name:
            given = set(vars(value)) - written.get(name, set(vars(value)))
            plain = "__dataclass_fields__" not in vars(value) and all(key.startswith(("__", "_abc")) for key in given)
            found += [name] if plain else []
            found += [f"{name}.{key}" for key, inner in vars(value).items() if _is_plain(inner, module, key)]
        elif _is_plain(value, module, name):
            found.append(name)
    return found


def _attributes_as_written(module: types.ModuleType) -> dict[str, set[str]]:
    """Class with decorators → names that its body binds."""
    text = Path(str(module.__file__)).read_text("utf-8", "replace")
    classes = ast.parse(text).body if _DECORATED_CLASS.search(text) else []
    return {
        node.name: {name for inner in node.body for name in bound_by(inner)}
        for node in classes
        if isinstance(node, ast.ClassDef) and node.decorator_list
    }


def _is_plain(value: Any, module: types.ModuleType, name: str) -> bool:
    if not isinstance(value, types.FunctionType) or vars(value):  # `__wrapped__` is one
        return False
    return (value.__code__.co_filename, value.__code__.co_name) == (module.__file__, name)


def _made_by_decorators(module: types.ModuleType) -> list[str]:
    functions = (types.FunctionType, staticmethod, classmethod, property)
    return [
        f"{name}.{key}"
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
        for key, inner in vars(value).items()
        if type(inner) not in functions
    ]


def _implementing(module: types.ModuleType) -> list[str]:
    """Methods that implement an abstract one."""
    found = []
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__:
            abstract = {method for base in value.__mro__[1:] for method in getattr(base, "__abstractmethods__", ())}
            found += [f"{name}.{method}" for method in sorted(abstract & set(vars(value)))]
    return found


def _homes(module: types.ModuleType, modules: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, value in vars(module).items():
        home = getattr(value, "__module__", None)
        named = isinstance(value, (type, types.FunctionType)) and value.__qualname__ == name
        if named and home != module.__name__ and home in modules:
            found[name] = str(home)
    return found
