"""The converter's process of one framework: describes a model, and runs it in float64 for a trial.

Run as `python -m twinalign.convert.worker`; needs numpy and the framework only. A request is a JSON line on standard
input, the answer a JSON line on standard output; what the framework or the user's code prints goes to standard error.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends import FRAMEWORK_OF_SIDE, backend_of_side
from twinalign.convert import trial_weights
from twinalign.convert.fingerprints import fingerprint
from twinalign.errors import InputError


def load_factory(specification: str) -> tuple[Any, dict[str, Any]]:
    """The callable and keyword arguments that `module:factory` or `path.py:factory(width=2, …)` names.

    Arguments are literals. Raises InputError naming what is wrong.
    """
    module_name, colon, call = specification.partition(":")
    if not colon or not module_name or not call:
        raise InputError(f"{specification!r} is no model: give module:factory or path/to/file.py:factory")
    name, arguments = call, {}
    if "(" in call:
        try:
            parsed = ast.parse(call, mode="eval").body
            assert isinstance(parsed, ast.Call)
            assert not parsed.args
            name = ast.unparse(parsed.func)
            arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in parsed.keywords}
        except (SyntaxError, ValueError, AssertionError):
            raise InputError(f"{specification!r}: arguments must be keyword=literal") from None
    try:
        found: Any = _module(module_name)
        for step in name.split("."):
            found = getattr(found, step)
    except (ImportError, FileNotFoundError) as error:
        raise InputError(f"{specification!r} cannot be imported: {error}") from None
    except AttributeError:
        raise InputError(f"{specification!r}: {module_name} has no {name}") from None
    return found, {str(key): value for key, value in arguments.items()}


def _module(name: str) -> Any:
    if not name.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(name)
    path = Path(name)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no {path}")
    sys.path.insert(0, str(path.resolve().parent))
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


def load_rules(names: Sequence[str]) -> None:
    """Import modules that register storage rules; raises InputError naming one that cannot be imported."""
    for name in names:
        try:
            _module(name)
        except (ImportError, FileNotFoundError) as error:
            raise InputError(f"--rules {name}: cannot be imported: {error}") from None


class Worker:
    """State of the process: its backend and the models that it has built."""

    def __init__(self, side: str, factory: str, rules: Sequence[str] = ()) -> None:
        """Import the framework of the side, the factory's module and the modules that register rules."""
        self.side = side
        load_rules(rules)
        self.framework = FRAMEWORK_OF_SIDE[side]
        self.backend = backend_of_side(side)
        self.backend.configure("cpu", None)
        self.specification = factory
        self.factory, self.arguments = load_factory(factory)
        self.doubled: Any = None

    def _build(self, dtype: str) -> Any:
        self.backend.set_seed(0)
        with self.backend.default_dtype(dtype):
            model = self.factory(**self.arguments)
        if not hasattr(model, "state_dict"):
            raise InputError(
                f"{self.specification!r} made a {type(model).__name__}, which is no {self.framework} model"
            )
        return model

    def describe(self) -> dict[str, Any]:
        """The layout of the model's state."""
        return {"layout": self.backend.describe_state(self._build("float32"))}

    def run(
        self,
        inputs: str,
        outputs: str,
        weights: str | None = None,
        colours: Mapping[str, str] | None = None,
        train: bool = False,
    ) -> dict[str, Any]:
        """Run the model once in float64 and fingerprint every layer's inputs and outputs, in the order of the calls.

        The weights come from the .npz file `weights`, or are made from `colours`, name of a unit → any text: units of
        the same colour have the same weights in both frameworks. The model's outputs are written to the .npz `outputs`.
        """
        if self.doubled is None:
            try:
                self.doubled = self._build("float64")
            except InputError:
                raise
            except Exception:  # a constructor may insist on float32 constants; cast what it makes instead
                self.doubled = self._build("float32")
            state = self.backend.describe_state(self.doubled)
            if any(entry["dtype"] in ("float32", "float16", "bfloat16") for entry in state):
                self.backend.prepare_model(self.doubled, "float64", "cpu")
        model = self.doubled
        if weights is not None:
            with np.load(weights, allow_pickle=False) as arrays:
                self.backend.load_state_arrays(model, arrays)
        else:
            layout = self.backend.describe_state(model)
            current = self.backend.state_arrays(model)
            made = trial_weights.make(self.framework, layout, current, colours or {})
            self.backend.load_state_arrays(model, made)
        self.backend.set_training(model, train)
        calls: list[dict[str, Any]] = []

        def observe(path: str, layer: Any, given: list[Any], returned: list[Any]) -> None:
            calls.append(
                {
                    "path": path,
                    "layer": f"{type(layer).__name__}({_described(layer)})",
                    "inputs": [fingerprint(self.backend.to_array(tensor)) for tensor in given],
                    "outputs": [fingerprint(self.backend.to_array(tensor)) for tensor in returned],
                }
            )

        with np.load(inputs, allow_pickle=False) as arrays:
            tensors = [self.backend.to_tensor(array, "float64", "cpu") for array in arrays.values()]
        with self.backend.default_dtype("float64"), self.backend.no_grad(), self.backend.observing(model, observe):
            returned = model(*tensors)
        found = [self.backend.to_array(tensor) for tensor in self.backend.tensors_in(returned)]
        np.savez(outputs, **{str(number): array for number, array in enumerate(found)})
        return {"calls": calls}


def _described(layer: Any) -> str:
    """The layer's own short description of its settings, in one line."""
    try:
        text = " ".join(str(layer.extra_repr()).split())
    except Exception:  # a user's layer may describe itself in any way it likes
        return ""
    # paddle's pooling layers do not show it.
    return f"{text}, ceil_mode=True" if getattr(layer, "ceil_mode", None) is True and "ceil_mode" not in text else text


def main() -> None:
    """Serve requests until standard input closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker: Worker | None = None
    for line in sys.stdin:
        request = json.loads(line)
        operation = request.pop("operation")
        try:
            if operation == "start":
                worker = Worker(**request)
                answer: dict[str, Any] = {}
            else:
                answer = getattr(worker, operation)(**request)
        except InputError as error:
            answer = {"problem": str(error)}
        except Exception as error:
            answer = {
                "crash": traceback.format_exception_only(error)[-1].strip(),
                "traceback": "".join(traceback.format_exception(error)),
            }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
