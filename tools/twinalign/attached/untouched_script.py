"""`twinalign attach -- python train.py`: attaches to the model of the script's first optimizer."""

import contextlib
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.errors import InputError
from twinalign.patching import replaced

# AdamW of paddle is made without the constructor that it derives from.
_OPTIMIZERS = {
    "torch.optim.optimizer": ("torch", "Optimizer"),
    "paddle.optimizer.optimizer": ("paddle", "Optimizer"),
    "paddle.optimizer.adamw": ("paddle", "AdamW"),
}


def run_attached(command: Sequence[str], options: Mapping[str, Any]) -> int:
    """Run a command whose Python processes record themselves; returns its exit code, as a shell has it.

    Args:
        command: program and arguments, as `["python", "train.py"]`.
        options: keyword arguments of `twinalign.attach`.

    Raises:
        InputError: the program cannot be started.
    """
    package = Path(__file__).parents[1]
    kept = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    paths = [str(package / "attached" / "injection"), *kept, str(package.parent)]
    # A script may go to another folder before it makes its model.
    files = {name: str(Path(options[name]).absolute()) for name in ("out", "weights", "feed") if options.get(name)}
    options = {**options, **files}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TWINALIGN_ATTACH": json.dumps(options)}
    try:
        code = subprocess.run(list(command), env=environment, check=False).returncode
    except OSError as error:
        raise InputError(f"{command[0]}: cannot be started ({error.strerror or error})") from None
    return code if code >= 0 else 128 - code


def attach_when_made(options: Mapping[str, Any]) -> None:
    """Attach when the first optimizer of torch or paddle is made in this process."""
    sys.meta_path.insert(0, _Finder(options))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in _OPTIMIZERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            load: Callable[..., Any] = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                framework, kind = _OPTIMIZERS[name]
                found = getattr(module, kind)
                found.__init__ = _attaching(found, framework, self._options)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_attached: list[str] = []


@contextlib.contextmanager
def attaching_to_first_optimizer(framework: str) -> Iterator[None]:
    """Attach when the first optimizer is made inside the block, in a process that has imported the framework."""
    _attached.clear()
    with contextlib.ExitStack() as stack:
        for module, (of_framework, name) in _OPTIMIZERS.items():
            if of_framework == framework:
                kind = getattr(importlib.import_module(module), name)
                stack.enter_context(replaced(kind, "__init__", _attaching(kind, framework, {})))
        yield


def _attaching(kind: Any, framework: str, options: Mapping[str, Any]) -> Callable[..., None]:
    """The constructor of an optimizer that attaches once it has run."""
    original = kind.__init__

    @functools.wraps(original)
    def made(self: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **keywords)
        if _attached or getattr(
            sys.modules[framework].__spec__, "_initializing", False
        ):  # one that the framework makes for itself
            return
        from twinalign.attached.attachment import attach
        from twinalign.backends import load_backend

        try:
            model = _model_of(load_backend(framework), self)
            if model is not None:
                _attached.append(framework)
                attach(model, **options)
                if options:
                    print(f"twinalign: recording {type(model).__name__} into {options['out']}", file=sys.stderr)
        except InputError as error:
            _attached.append(framework)
            print(f"twinalign: not attached: {error}", file=sys.stderr)

    return made


def _model_of(backend: Any, optimizer: Any) -> Any:
    """The model that holds the most of an optimizer's parameters, without wrappers; None if none holds any."""
    held = {id(parameter) for parameter in backend.held_parameters(optimizer)}
    # By its class first: some objects answer `isinstance` with a warning.
    models = [each for each in gc.get_objects() if hasattr(type(each), "forward") and backend.is_model(each)]
    inner = {id(layer) for model in models for path, layer in backend.named_layers(model) if path}
    roots = [model for model in models if id(model) not in inner]
    counts = [sum(id(p) in held for p in backend.named_parameters(model).values()) for model in roots]
    most = max(counts, default=0)
    return _without_wrappers(backend, roots[counts.index(most)], held) if most else None


def _without_wrappers(backend: Any, model: Any, held: set[int]) -> Any:
    """The model inside of what a library puts around it for its loss and metrics, whose name its weights would bear."""
    inner = backend.unwrapped(model)
    children = [layer for path, layer in backend.named_layers(inner) if path and "." not in path]
    trained = [child for child in children if _holds(backend, child, held)]
    if len(trained) != 1 or _is_of_framework(inner) or any(map(_is_of_framework, children)):
        return model
    own = {id(one) for one in backend.named_parameters(trained[0]).values()}
    complete = all(id(one) in own for one in backend.named_parameters(inner).values() if id(one) in held)
    return _without_wrappers(backend, trained[0], held) if complete else model


def _holds(backend: Any, layer: Any, held: set[int]) -> bool:
    return any(id(one) in held for one in backend.named_parameters(layer).values())


def _is_of_framework(layer: Any) -> bool:
    """Whether it is a layer that computes something of its own; a loss belongs to the loop."""
    module = type(layer).__module__
    return module.startswith(("torch.nn.", "paddle.nn.")) and not module.endswith(".loss")
