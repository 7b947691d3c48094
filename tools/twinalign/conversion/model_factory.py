"""Models and modules that a user names in text: `module:factory(width=2)`, and files of storage rules."""

import ast
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twinalign.backends import backend_of_side
from twinalign.conversion.trial_model import TrialModel
from twinalign.errors import InputError
from twinalign.sides import FRAMEWORK_OF_SIDE


def load_factory(specification: str) -> tuple[Any, dict[str, Any]]:
    """The callable and keyword arguments that `module:factory` or `path.py:factory("small", width=2, …)` names.

    Arguments are literals; those by position are bound to the callable. Raises InputError naming the problem.
    """
    module_name, colon, call = specification.partition(":")
    if not colon or not module_name or not call:
        raise InputError(f"{specification!r} is not a model: give module:factory or path/to/file.py:factory")
    name, positional, arguments = call, [], {}
    if "(" in call:
        try:
            parsed = ast.parse(call, mode="eval").body
            assert isinstance(parsed, ast.Call)
            name = ast.unparse(parsed.func)
            positional = [ast.literal_eval(argument) for argument in parsed.args]
            arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in parsed.keywords}
        except (SyntaxError, ValueError, AssertionError):
            raise InputError(f"{specification!r}: arguments must be literals") from None
    try:
        found: Any = _module(module_name)
        for step in name.split("."):
            found = getattr(found, step)
    except (ImportError, FileNotFoundError) as error:
        raise InputError(f"{specification!r} cannot be imported: {error}") from None
    except AttributeError:
        raise InputError(f"{specification!r}: {module_name} has no {name}") from None
    found = functools.partial(found, *positional) if positional else found
    return found, {str(key): value for key, value in arguments.items()}


def _module(name: str) -> Any:
    if not name.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(name)
    path = Path(name)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no {path}")
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == specification.origin:
        return loaded
    sys.path.insert(0, str(path.resolve().parent))
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


def load_rules(names: Sequence[str]) -> None:
    """Import modules that register storage rules; raises InputError naming one that cannot be imported."""
    if names:  # files written for earlier versions import from here
        sys.modules.setdefault("twinalign.convert", importlib.import_module("twinalign.conversion"))
    for name in names:
        try:
            _module(name)
        except (ImportError, FileNotFoundError) as error:
            raise InputError(f"--rules {name}: cannot be imported: {error}") from None


class FactoryModel:
    """The model that a factory makes, on the CPU, in a converter's child process."""

    def __init__(
        self, emit: Callable[..., None], *, side: str, factory: str, rules: Sequence[str], threads: int | None = None
    ) -> None:
        """Nothing is imported until the model is needed, so that two sides can import at the same time."""
        self._side, self._specification, self._rules = side, factory, rules
        self._model: TrialModel | None = None

    def trial_model(self) -> TrialModel:
        """The model; on the first call imports the rules, the framework and the factory's module."""
        if self._model is None:
            load_rules(self._rules)
            framework, backend = FRAMEWORK_OF_SIDE[self._side], backend_of_side(self._side)
            backend.configure("cpu", None)
            factory, arguments = load_factory(self._specification)

            def build() -> Any:
                backend.set_seed(0)
                with backend.building():
                    model = factory(**arguments)
                if not hasattr(model, "state_dict"):
                    raise InputError(
                        f"{self._specification!r} made a {type(model).__name__}, which is not a {framework} model"
                    )
                return model

            self._model = TrialModel(backend, framework, "cpu", build)
        return self._model
