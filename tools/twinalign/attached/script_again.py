"""A recorded script run once more, up to the first step of its optimizer: for a model, its call and its optimizer.

The script is the user's own, and builds its model from what no recording can hold: classes of its own, closures,
arguments that are no arrays.
"""

import contextlib
import copy
import dataclasses
import importlib.util
import os
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from twinalign.attached import attachment
from twinalign.attached.named_arguments import named_arguments
from twinalign.attached.untouched_script import attaching_to_first_optimizer
from twinalign.backends.protocol import Backend
from twinalign.errors import InputError
from twinalign.patching import replaced


class _Made(BaseException):
    """Ends the script; no `except Exception` of its own stops this."""


@dataclasses.dataclass
class Captured:
    """What a script makes: a model, the arguments of its first call in training, the optimizer that trains it."""

    model: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    names: list[str]
    """Of the tensors among the arguments, in order."""
    optimizer: Any
    """None for a model that no optimizer updates."""
    _beginning: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._beginning = _copied(vars(self.optimizer)) if self.optimizer is not None else {}

    def fresh_optimizer(self) -> Any:
        """The optimizer as it was before its first step; the same object, since names in it are of these parameters."""
        vars(self.optimizer).update(_copied(self._beginning))
        return self.optimizer


def _copied(value: Any) -> Any:
    """Plain containers copied all the way down, what is in them not."""
    if type(value) in (dict, defaultdict):
        made = copy.copy(value)
        made.update({key: _copied(item) for key, item in value.items()})
        return made
    if type(value) in (list, set):
        return type(value)(map(_copied, value)) if type(value) is list else set(value)
    return value


def run_again(started: Mapping[str, Any] | None, backend: Backend, name: str, folder: Path) -> Captured:
    """Run the script until the optimizer of the model that it attaches under `name` makes its first step.

    Args:
        started: `attachment.how_started` of the recorded process.
        folder: of the recording, for messages.

    Raises:
        InputError: there is no script, or it ends before that.
    """
    if started is None:
        raise InputError(f"{folder}: was not recorded by a script; locate runs the script again to get its model")
    watch = _Watch(backend, name)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: watch.stack.close())
        stack.callback(backend.leave_ranks)
        stack.enter_context(replaced(attachment, "divert", watch.attached))
        if started["untouched"]:
            stack.enter_context(attaching_to_first_optimizer(backend.FRAMEWORK))
        stack.enter_context(_as_started(started))
        try:
            _execute(started)
        except _Made:
            assert watch.captured is not None
            return watch.captured
        except SystemExit:
            pass
    raise InputError(
        f"{folder}: {started['script']} ended before a step of the optimizer of a model attached as {name!r}"
        if name
        else f"{folder}: {started['script']} ended before the first step of the attached optimizer"
    )


class _Watch:
    """Waits for the call of a model and for the first step of its optimizer."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend, self._name = backend, name
        self._call: tuple[tuple[Any, ...], dict[str, Any], list[str]] | None = None
        self._stepping: Any = None
        """An optimizer whose step calls the model itself, by a function that it is given."""
        self.captured: Captured | None = None
        self.stack = contextlib.ExitStack()

    def attached(self, models: Mapping[str, Any]) -> contextlib.closing[Any]:
        model = models.get(self._name)
        if model is not None and self.captured is None:
            inner = self._backend.unwrapped(model)
            nothing: Callable[..., None] = lambda *_: None  # noqa: E731
            self.stack.callback(self._backend.watch_calls(model, lambda *given: self._called(inner, *given), nothing))
            updates = self._backend.watching_updates(lambda one, _: self._step(inner, one), self._stepped)
            self.stack.enter_context(updates)
        return contextlib.closing(self.stack)

    def _called(self, inner: Any, _: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self._call is None and (inner.training or not self._is_trained(inner)):
            names = [name for name, _ in named_arguments(self._backend, inner, arguments, keywords)]
            self._call = arguments, keywords, names
            if self._stepping is not None:
                self._step(inner, self._stepping)

    def _is_trained(self, model: Any) -> bool:
        return any(self._backend.trainable(one) for one in self._backend.named_parameters(model).values())

    def _step(self, model: Any, optimizer: Any) -> None:
        own = {id(one) for one in self._backend.named_parameters(model).values()}
        mine = any(id(one) in own for one in self._backend.held_parameters(optimizer))
        self._stepping = optimizer if mine else self._stepping
        if self._call is not None and (mine or not self._is_trained(model)):
            self._backend.clear_gradients(model)
            self.captured = Captured(model, *self._call, optimizer if mine else None)
            raise _Made

    def _stepped(self, _: Any) -> None:
        self._stepping = None


_SOLE_PROCESS = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
_SOLE_PROCESS |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""What torchrun tells the process of a training that has no other; port 0 is any that is free."""


@contextlib.contextmanager
def _as_started(started: Mapping[str, Any]) -> Iterator[None]:
    """Arguments, folder and search path as the script had them; what it imports later needs the path for good."""
    sys.path[:0] = [path for path in started["path"] if path not in sys.path]
    if not Path(started["folder"]).is_dir():
        raise InputError(f"{started['folder']}: the folder in which {started['script']} was run is gone")
    if started.get("processes", 1) > 1:
        for name, value in _SOLE_PROCESS.items():
            os.environ.setdefault(name, value)
    with replaced(sys, "argv", [started["script"], *started["arguments"]]), contextlib.chdir(started["folder"]):
        yield


def _execute(started: Mapping[str, Any]) -> None:
    """As `python script.py` or `python -m module` does; the module stays, since inspection asks for it by name."""
    module = types.ModuleType("__main__")
    if started["module"]:
        specification = importlib.util.find_spec(started["module"])
        code = specification.loader.get_code(started["module"]) if specification and specification.loader else None  # type: ignore[attr-defined]
        if specification is None or code is None:
            raise InputError(f"{started['module']}: no such module; run locate where the trainer can be run")
        module.__spec__, module.__package__ = specification, specification.parent
    else:
        try:
            code = compile(Path(started["script"]).read_bytes(), started["script"], "exec")
        except OSError as error:
            raise InputError(f"{started['script']}: cannot be run again ({error.strerror})") from None
    module.__file__ = started["script"]
    sys.modules["__main__"] = module
    exec(code, vars(module))
