"""What a torch model needs of its sources, seen while it is built and run; called in the reference's process."""

import contextlib
import dataclasses
import functools
import importlib.metadata
import inspect
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends import load_backend
from twinalign.conversion.model_factory import load_factory
from twinalign.drafting.chance import without_chance
from twinalign.errors import InputError

_FRAMEWORKS = ("torch", "numpy", "paddle", "twinalign", "functorch", "triton")
_IMPORTS_TORCH = re.compile(r"^\s*(?:import|from)\b[^\n#]*\btorch\b", re.MULTILINE)
_TORCH = str(Path(np.__file__).parent.parent / "torch")
_LITERALS = (bool, int, float, complex, str, bytes, type(None))


def observe_model(reference: str, inputs: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Build the model that `module:factory(…)` names, run it in eval and training mode, backward included, and say

    - `root`: the class that was built (module and name), the source of its arguments, and what these import, or, where
      the arguments have no source, the factory itself;
    - `modules`: name → file of every module with code of the model's own packages, those that the run never entered
      included;
    - `imported`: module → first lines of the functions that ran while the model's sources were imported;
    - `entered`: the same of those that ran when the model was built and run;
    - `handled`: the same of those of them that were handed a tensor, or returned one;
    - `plain`: module → names of its functions, classes and methods (`Class.method`) that are what their `def` or
      `class` made, whatever the decorators;
    - `made`: module → names of methods that a decorator made into something else than a function, a descriptor say;
    - `abstract`: module → names of methods (`Class.method`) without which Python would not make an object of the class;
    - `homes`: module → name → module of the same packages that defines the class or function of that name, which a
      package that imports lazily binds nowhere;
    - `promoted`: module → operations between tensors of two types, as `promotions.Promotion` has them;
    - `draws`: whether its training draws random numbers beside those of dropout.

    `inputs` are names, shapes, dtypes and, for integers, bounds. Raises InputError if the model does not run on them.
    """
    from twinalign.backends.torch.reference_only.promotion import Promotions

    backend = load_backend("torch")
    imported: set[types.CodeType] = set()
    with _profiled(lambda frame, event, value: imported.add(frame.f_code)):
        factory, arguments = load_factory(reference)
    entered: set[types.CodeType] = set()
    handled: set[types.CodeType] = set()
    built: dict[int, tuple[Any, dict[str, Any]]] = {}
    returned: list[tuple[Any, Any, dict[str, Any]]] = []

    importing: list[types.CodeType] = []

    def note(frame: types.FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if code.co_name == "<module>" and event in ("call", "return"):  # a factory may import what it builds
            importing.append(code) if event == "call" else importing.pop()
        if importing:
            imported.add(code)
            return
        if event == "return" and backend.is_model(value) and not code.co_name.startswith("<"):
            made_by = frame.f_globals.get(code.co_name)
            if getattr(inspect.unwrap(made_by) if callable(made_by) else None, "__code__", None) is code:
                returned.append((value, made_by, _arguments_of(code, frame.f_locals, method=False)))
        if event not in ("call", "return"):
            return
        if code not in handled and not code.co_filename.startswith(_TORCH):
            seen = list(_arguments_of(code, frame.f_locals, method=False).values()) if event == "call" else [value]
            if _holds_tensor(backend, seen):
                handled.add(code)
        if event == "return":
            return
        entered.add(code)
        if code.co_name == "__init__" and code.co_argcount:
            values = frame.f_locals
            made = values.get(code.co_varnames[0])
            if id(made) not in built and backend.is_model(made):
                # A constructor may empty a list that it was given.
                built[id(made)] = made, {name: _kept(value) for name, value in _arguments_of(code, values).items()}

    backend.set_seed(0)
    with Promotions() as promotions, _profiled(note):
        model = factory(**arguments)
        factory(**arguments)  # a class may keep what its first object found out
        for _ in run_once(backend, model, inputs):
            pass
    if not backend.is_model(model):
        raise InputError(f"--ref {reference}: it made a {type(model).__name__}, which is not a torch.nn.Module")
    packages = _own_packages(entered)
    names = packages | _needing_torch()
    modules = {
        name: str(module.__file__)
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] in names and str(getattr(module, "__file__", "")).endswith(".py")
    }
    of_file = {file: name for name, file in modules.items() if name.partition(".")[0] in packages}
    return {
        "root": _root(model, built[id(model)][1] if id(model) in built else None, returned),
        "modules": modules,
        "imported": _first_lines(imported, of_file),
        "entered": _first_lines(entered, of_file),
        "handled": _first_lines(handled, of_file),
        "plain": {name: _plain_names(sys.modules[name]) for name in modules},
        "made": {name: made for name in modules if (made := _made_by_decorators(sys.modules[name]))},
        "abstract": {name: found for name in modules if (found := _implementing(sys.modules[name]))},
        "homes": {name: homes for name in modules if (homes := _homes(sys.modules[name], modules))},
        "promoted": {
            of_file[file]: sorted([*place, *types] for place, types in found.items())
            for file, found in promotions.found.items()
            if file in of_file
        },
        "draws": _draws(backend, model, inputs),
    }


@contextlib.contextmanager
def _profiled(note: Callable[[types.FrameType, str, Any], Any]) -> Iterator[None]:
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def _draws(backend: Any, model: Any, inputs: Sequence[Sequence[Any]]) -> bool:
    without_chance(model.modules(), model)
    found = []
    for seed in (0, 1):
        backend.set_seed(seed)
        backend.set_training(model, True)
        with backend.no_grad():
            found.append([backend.to_array(t) for t in backend.tensors_in(model(*_tensors_of(backend, inputs)))])
    return not all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def _holds_tensor(backend: Any, value: Any) -> bool:
    """Whether it is a tensor or Python's own containers have one; the methods of other objects are not called."""
    if type(value) is dict:
        return any(_holds_tensor(backend, item) for item in value.values())
    if type(value) in (list, tuple):
        return any(_holds_tensor(backend, item) for item in value)
    return bool(backend.is_tensor(value))


def run_once(backend: Any, model: Any, inputs: Sequence[Sequence[Any]]) -> Iterator[np.ndarray]:
    """Outputs in eval and in training mode; the backward pass of the latter's sum follows."""
    tensors = _tensors_of(backend, inputs)
    for training in (False, True):
        backend.set_training(model, training)
        outputs = backend.tensors_in(model(*tensors))
        yield from map(backend.to_array, outputs)
        found = [tensor for tensor in outputs if tensor.requires_grad]
        if training and found:
            sum(tensor.float().sum() for tensor in found).backward()


def _tensors_of(backend: Any, inputs: Sequence[Sequence[Any]]) -> list[Any]:
    rng = np.random.default_rng(0)
    tensors = []
    for _, shape, dtype, bound in inputs:
        floating = np.dtype(dtype).kind == "f"
        array = rng.standard_normal(shape) if floating else rng.integers(0, bound, shape)
        tensors.append(backend.to_tensor(array.astype(dtype), "float32", "cpu"))
    return tensors


def _kept(value: Any) -> Any:
    """A copy of the containers in a value."""
    if type(value) in (list, tuple, set):
        return type(value)(map(_kept, value))
    return {key: _kept(item) for key, item in value.items()} if type(value) is dict else value


def _arguments_of(code: types.CodeType, values: dict[str, Any], *, method: bool = True) -> dict[str, Any]:
    """Arguments of a function by name, without a method's first; those of `*args` under `*`."""
    names = code.co_varnames
    count = code.co_argcount + code.co_kwonlyargcount
    found = {name: values[name] for name in names[method:count] if name in values}
    if code.co_flags & inspect.CO_VARARGS:
        found["*"] = values.get(names[count], ())
        count += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        found.update(values.get(names[count], {}))
    return found


def _own_packages(entered: set[types.CodeType]) -> set[str]:
    """Packages that were entered and that import torch; the standard library is none."""
    library = sysconfig.get_paths()["stdlib"]
    files = {str(getattr(module, "__file__", None)): name for name, module in list(sys.modules.items())}
    packages = set()
    for file in {code.co_filename for code in entered} & set(files):
        package = files[file].partition(".")[0]
        outside = not file.startswith(library) or "site-packages" in file
        if outside and package not in _FRAMEWORKS and _IMPORTS_TORCH.search(Path(file).read_text("utf-8", "replace")):
            packages.add(package)
    return packages


def _first_lines(codes: set[types.CodeType], of_file: dict[str, str]) -> dict[str, list[int]]:
    found: dict[str, set[int]] = {}
    for code in codes:
        if code.co_filename in of_file:
            found.setdefault(of_file[code.co_filename], set()).add(code.co_firstlineno)
    return {name: sorted(lines) for name, lines in found.items()}


def _needing_torch() -> set[str]:
    """Packages that are imported and whose distributions require torch: their names may be named by the model's."""
    loaded = {name.partition(".")[0] for name in sys.modules} - set(_FRAMEWORKS)
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
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, type) and value.__qualname__ == name:
            found += [name] if "__dataclass_fields__" not in vars(value) else []
            found += [f"{name}.{key}" for key, inner in vars(value).items() if _is_plain(inner, module, key)]
        elif _is_plain(value, module, name):
            found.append(name)
    return found


def _is_plain(value: Any, module: types.ModuleType, name: str) -> bool:
    if not isinstance(value, types.FunctionType) or hasattr(value, "__wrapped__"):
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


class _NoSourceError(Exception):
    """A value that no short text makes again."""


def _root(
    model: Any, given: dict[str, Any] | None, returned: Sequence[tuple[Any, Any, dict[str, Any]]]
) -> dict[str, Any]:
    """The class with what it was given; where that has no source, the innermost function that returned the model and
    whose arguments have one.
    """
    kind = type(model)
    makers = [(maker, arguments) for value, maker, arguments in returned if value is model]
    if (
        given is not None
        and kind.__module__.partition(".")[0] not in _FRAMEWORKS
        and "<locals>" not in kind.__qualname__
    ):
        makers.insert(0, (kind, given))
    for maker, arguments in makers:
        imports: set[tuple[str, str]] = {(maker.__module__, maker.__qualname__)}
        values = dict(arguments)
        try:
            texts = [_source(value, imports) for value in values.pop("*", ())]
            texts += [f"{name}={_source(value, imports)}" for name, value in values.items()]
        except _NoSourceError:
            continue
        return {"calls": maker.__qualname__, "arguments": texts, "imports": sorted(imports)}
    raise InputError(f"--ref: nothing that returned the {kind.__name__} can be called again with arguments in text")


def _source(value: Any, imports: set[tuple[str, str]]) -> str:
    """Text that makes a value again; `imports` gets what it names."""
    if type(value) in _LITERALS:
        return repr(value)
    if type(value) in (list, tuple, set):
        parts = [_source(item, imports) for item in value]
        comma = "," if isinstance(value, tuple) and len(parts) == 1 else ""
        brackets = "[]" if isinstance(value, list) else "()" if isinstance(value, tuple) else "{}"
        return f"{brackets[0]}{', '.join(parts)}{comma}{brackets[1]}" if parts or brackets != "{}" else "set()"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_source(k, imports)}: {_source(v, imports)}" for k, v in value.items()) + "}"
    if isinstance(value, functools.partial):
        parts = [_source(value.func, imports), *(_source(item, imports) for item in value.args)]
        parts += [f"{name}={_source(item, imports)}" for name, item in value.keywords.items()]
        imports.add(("functools", "partial"))
        return f"partial({', '.join(parts)})"
    if isinstance(value, (type, types.FunctionType)) and "<" not in value.__qualname__:
        if value.__module__.partition(".")[0] == "torch":
            return _public_name(value)
        imports.add((value.__module__, value.__qualname__))
        return value.__qualname__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _source_of_dataclass(value, imports)
    raise _NoSourceError


def _source_of_dataclass(value: Any, imports: set[tuple[str, str]]) -> str:
    """The call that makes an equal one: what `__post_init__` makes of the fields is made of them once more."""
    kind = type(value)
    given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    try:
        equal = "<" not in kind.__qualname__ and kind(**given) == value
    except Exception:  # whatever its own code raises
        equal = False
    if not equal:
        raise _NoSourceError
    imports.add((kind.__module__, kind.__qualname__))
    return f"{kind.__qualname__}({', '.join(f'{name}={_source(item, imports)}' for name, item in given.items())})"


def _public_name(value: Any) -> str:
    """`torch.nn.GELU` for `torch.nn.modules.activation.GELU`."""
    name = str(value.__name__)
    for place in ("torch.nn", "torch.nn.functional", "torch"):
        if vars(sys.modules[place]).get(name) is value:
            return f"{place}.{name}"
    raise _NoSourceError
