"""Find the case that a user names: registered, in a file, or in a module."""

import contextlib
import difflib
import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from twinalign.case.definition import Case
from twinalign.errors import InputError


def registered_cases() -> dict[str, str]:
    """Registered name -> `package.module:ClassName`, from the entry points of installed packages."""
    import importlib.metadata  # slow to import, and a reader of a bundle has no need of it

    return {point.name: point.value for point in importlib.metadata.entry_points(group="twinalign.cases")}


def resolve_case(reference: str) -> str:
    """Turn a registered name into `package.module:ClassName` and check a path; nothing of the case is imported.

    Raises:
        InputError: no such registered name or file, or a text of neither form.
    """
    registered = registered_cases()
    if reference in registered:
        return registered[reference]
    path, _, class_name = reference.partition(":")
    if path.endswith(".py"):
        if not Path(path).is_file():
            raise InputError(f"case {reference!r}: no file {path}; give a path to a case.py, or a registered name")
        return f"{Path(path).resolve()}:{class_name}" if class_name else str(Path(path).resolve())
    if class_name and all(part.isidentifier() for part in path.split(".")):
        return reference
    raise InputError(
        f"unknown case {reference!r}; registered: {', '.join(sorted(registered)) or 'none'}; "
        "or give path/to/case.py or package.module:ClassName"
    )


def load_case(reference: str, options: Mapping[str, str] | None = None) -> Case:
    """Import and instantiate the case, then apply `--set` options.

    `reference`: `path/to/case.py`, `path/to/case.py:ClassName` or `package.module:ClassName`, from `resolve_case`.

    Raises:
        InputError: no case of that name, several to choose from, or an option that does not fit.
    """
    module_name, _, class_name = reference.partition(":")
    in_file = module_name.endswith(".py")
    module = _import_file(Path(module_name)) if in_file else _import_module(module_name, reference)
    if class_name:
        chosen = getattr(module, class_name, None)
        if not (isinstance(chosen, type) and issubclass(chosen, Case)):
            there = ", ".join(case.__name__ for case in _cases_in(module)) or "none"
            raise InputError(f"case {reference!r}: {class_name} is not a case in {module_name}; it has {there}")
    else:
        chosen = _only_case(module, reference)
    _require_known_names(chosen, reference)
    _require_known_arguments(chosen, reference)
    case = chosen()
    case.name = case.name or chosen.__name__
    for key, text in (options or {}).items():
        set_option(case, key, text)
    return case


def set_option(case: Case, key: str, text: str) -> None:
    """Set a public attribute of the case from text, converted to its current type; raises InputError if it cannot."""
    present = getattr(case, key, None)
    if key.startswith("_") or not hasattr(case, key) or callable(present):
        known = sorted(k for k in dir(case) if not k.startswith("_") and not callable(getattr(case, k)))
        raise InputError(f"--set {key}: case {case.name} has no such option; it has {', '.join(known)}")
    try:
        if isinstance(present, bool):
            value: Any = {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        elif isinstance(present, (int, float)):
            value = type(present)(text)
        else:
            value = text
    except (KeyError, ValueError):
        raise InputError(f"--set {key}={text}: {type(present).__name__} expected") from None
    setattr(case, key, value)


def _require_known_names(case: type[Case], reference: str) -> None:
    """Raise InputError for an attribute that is nearly one of `Case`'s, and that the case's own file never reads."""
    known = tuple(name for name in vars(Case) if not name.startswith("_"))
    kinds = case.__mro__[: case.__mro__.index(Case)]
    for kind in kinds:
        for name in vars(kind):
            near = [] if name.startswith("_") or hasattr(Case, name) else _near(name, known)
            if near and not re.search(rf"\.{name}\b", "".join(map(_source_of, kinds))):
                raise InputError(
                    f"case {reference!r}: a Case has no {name!r}, and {kind.__name__} never reads it; did you mean "
                    f"{near[0]!r}? If it is your own, begin its name with _"
                )


@functools.cache  # a search makes the case anew for each thing that it tries
def _near(name: str, known: tuple[str, ...]) -> list[str]:
    return difflib.get_close_matches(name, known, 1, 0.8)


def _require_known_arguments(case: type[Case], reference: str) -> None:
    """Raise InputError for a method that cannot be called as `Case`'s own is."""
    for name, own in inspect.getmembers(Case, inspect.isfunction):
        given = getattr(case, name)
        if name.startswith("_") or given is own or not inspect.isfunction(given):
            continue
        passed = list(inspect.signature(own).parameters)
        try:
            inspect.signature(given).bind(*passed)
        except TypeError as error:
            raise InputError(
                f"case {reference!r}: {given.__qualname__}{inspect.signature(given)} is called with "
                f"({', '.join(passed)}): {error}; write def {name}({', '.join(passed)})"
            ) from None


def _source_of(kind: type) -> str:
    try:
        return inspect.getsource(sys.modules[kind.__module__])
    except (OSError, TypeError, KeyError):  # made without a file
        return ""


def _import_module(name: str, reference: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise InputError(f"case {reference!r}: no module {error.name}; check the name and PYTHONPATH") from None
        raise


_KEPT: list[dict[str, Any]] = []
"""Modules of cases by their file, inside of `kept_modules`."""


@contextlib.contextmanager
def kept_modules() -> Iterator[None]:
    """Inside the block the file of a case runs once: each further case is of the same class, with its code as it is."""
    _KEPT.append({})
    try:
        yield
    finally:
        _KEPT.pop()


def _import_file(path: Path) -> Any:
    if _KEPT:
        if str(path) not in _KEPT[-1]:
            _KEPT[-1][str(path)] = _run_file(path)
        return _KEPT[-1][str(path)]
    return _run_file(path)


def _run_file(path: Path) -> Any:
    # Modules beside the case are part of it: `from my_port import model` must work.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = f"twinalign_case_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"case {str(path)!r}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(f"case {str(path)!r}: {error.filename}, line {error.lineno}: {error.msg}") from None
    return module


def _cases_in(module: Any) -> list[type[Case]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Case) and value.__module__ == module.__name__
    ]


def _only_case(module: Any, reference: str) -> type[Case]:
    own = _cases_in(module)
    if len(own) != 1:
        names = ", ".join(case.__name__ for case in own) or "none"
        raise InputError(
            f"case {reference!r}: one Case class expected, found {names}; name it as {reference}:ClassName"
        )
    return own[0]
