"""What is written of a trainer's steps, event by event, in the order in which the trainer's loop makes them."""

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from twinalign.backends.protocol import Backend
from twinalign.case.calling import named_values
from twinalign.errors import InputError
from twinalign.files.attached_recordings import NUMBERS, ArrayStream, array_stream, has_line, step_path
from twinalign.files.recordings import (
    PROJECTIONS_SUFFIX,
    SAMPLE_SIZE,
    metadata_path,
    random_projections,
    sample,
    write_json,
)

Event = TypeVar("Event", bound=Callable[..., None])


def _never_raises(event: Event) -> Event:
    """An error ends the recording with one line, and the training goes on."""

    @functools.wraps(event)
    def guarded(self: "StepRecorder", *arguments: Any) -> None:
        if self.ended:
            return
        try:
            event(self, *arguments)
        except Exception as error:
            said = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            said = " ".join(said.split())
            where = f"{self._folder}: recording stopped at step {self.step}, the training goes on"
            print(f"twinalign: {where}: {said}", file=sys.stderr)
            self.end()

    return guarded  # type: ignore[return-value]


class StepRecorder:
    """Writes the events of a step into its file, and a line of numbers at its end."""

    def __init__(
        self,
        backend: Backend,
        models: Mapping[str, Any],
        optimizers: list[Any] | None,
        folder: Path,
        steps: frozenset[int],
        whole_layers: bool,
    ) -> None:
        self.step = self.calls = 0
        self.ended = False
        self.on_end: Callable[[], None] = lambda: None
        self._backend, self._models, self._folder, self._steps = backend, models, folder, steps
        self._whole_layers = whole_layers
        self._optimizers = optimizers
        self._known: list[Any] = list(optimizers or [])
        self._names = {id(parameter): name for name, parameter in self._parameters()}
        self._file = contextlib.ExitStack()
        self._stream: ArrayStream | None = None
        self._numbers: Any = None
        self._updating = self._computes_gradients = False
        self._clear()

    def _clear(self) -> None:
        self.calls = 0
        self._facts: dict[str, Any] = {"events": [], "calls": [], "dtypes": {}}
        self._losses: list[tuple[Any, float]] = []
        self._scale = 1.0
        self._unclipped: Any = None
        self._clipped: list[Any] | None = None
        self._updated_in_scaler = False

    @_never_raises
    def begin(self, write_beginning: Callable[[], None]) -> None:
        write_beginning()
        self._numbers = (self._folder / NUMBERS).open("w", encoding="utf-8")

    def end(self) -> None:
        """Stop recording; the step that was being recorded is given up."""
        self.ended = True
        with contextlib.suppress(Exception):
            self._file.pop_all().__exit__(InputError, InputError("ended"), None)
        with contextlib.suppress(OSError):
            if self._numbers is not None:
                self._numbers.close()
        self.on_end()

    def finish(self) -> None:
        if not self.ended:
            self.end()

    @property
    def _chosen(self) -> bool:
        return self.step // max(1, len(self._known)) in self._steps

    def _open(self) -> ArrayStream | None:
        if self._stream is None and self._chosen:
            self._stream = self._file.enter_context(array_stream(step_path(self._folder, self.step)))
        return self._stream

    def _write(self, name: str, value: Any) -> None:
        if self._backend.is_tensor(value):
            self._facts["dtypes"][name] = self._backend.dtype_name(value)
            value = self._backend.to_array(value)
        if self._stream is not None:
            self._stream.add(name, np.asarray(value))

    def _write_all(self, prefix: str, named: Iterable[tuple[str, Any]]) -> None:
        for name, value in named:
            self._write(f"{prefix}.{name}" if name else prefix, value)

    @_never_raises
    def call(self, name: str, part: str, model: Any, arguments: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        """A call of a model, or of the `part` of it at this path where the whole is not called."""
        self._facts["events"].append("call")
        if self._open() is not None:
            fact = {"model": name, "part": part, "training": bool(model.training)}
            fact |= {"autocast": self._backend.autocast_dtype(), "random": self._backend.random_state()}
            self._facts["calls"].append(fact)
            if self.calls == 0 and self._known:
                self._write_untrained()
            self._write_all(f"call{self.calls}.input", arguments())
        self.calls += 1

    def _write_untrained(self) -> None:
        """Parameters that no optimizer holds, such as moving averages, which move between the steps."""
        held = {id(one) for optimizer in self._known for one in self._backend.held_parameters(optimizer)}
        self._write_all("untrained", ((name, one) for name, one in self._parameters() if id(one) not in held))

    def _parameters(self) -> Iterator[tuple[str, Any]]:
        """All parameters of the models with their names; of several models, behind the model's own."""
        for model_name, model in self._models.items():
            for key, parameter in self._backend.named_parameters(model).items():
                yield name_in(model_name, key), parameter

    @_never_raises
    def output(self, output: Any) -> None:
        if self._stream is not None and self._facts["calls"]:
            fact = self._facts["calls"][-1]
            fact["draws"] = self._backend.random_state() != fact.pop("random", None)
            self._write_all(f"call{self.calls - 1}.output", self._leaves(output))

    @_never_raises
    def layer(self, path: str, output: Any) -> None:
        if self._stream is None or not self._facts["calls"]:
            return
        for name, value in self._leaves(output):
            key = f"call{self.calls - 1}.layer.{path}{'.' if name else ''}{name}"
            array = self._backend.to_array(value) if self._backend.is_tensor(value) else np.asarray(value)
            if not self._whole_layers and array.size > SAMPLE_SIZE:
                self._write(key + PROJECTIONS_SUFFIX, random_projections(array))
                array = sample(array)
            self._write(key, array)

    def _leaves(self, value: Any) -> Iterable[tuple[str, Any]]:
        leaves = named_values(value, self._backend.is_tensor, "", {})
        return ((name, leaf) for name, leaf in leaves if self._backend.is_tensor(leaf) or isinstance(leaf, np.ndarray))

    @_never_raises
    def cross_entropy(self, logits: Any, labels: Any, settings: dict[str, Any]) -> None:
        if self._stream is not None and self._facts["calls"]:
            prefix = f"call{self.calls - 1}"
            if f"{prefix}.labels" not in self._stream.names:
                self._facts["calls"][-1]["cross_entropy"] = settings
                arrays = self._backend.to_array(logits), self._backend.to_array(labels)
                written = zip(
                    ("logits", "labels"), (logits, labels), _by_position(*arrays, settings["axis"]), strict=True
                )
                for name, tensor, array in written:
                    self._facts["dtypes"][f"{prefix}.{name}"] = self._backend.dtype_name(tensor)
                    self._write(f"{prefix}.{name}", array)

    @_never_raises
    def backward(self, tensor: Any) -> None:
        number = len(self._losses)
        self._losses.append((tensor.detach(), self._scale))
        self._facts["events"].append("backward")
        if self._open() is not None:
            self._write(f"loss{number}", tensor)
            if number == 0:
                self._write_gradients("first_gradient")

    @_never_raises
    def scaler(self, event: str, scale: float, given: Any) -> None:
        if event == "before scale":
            self._scale = scale
        elif event == "before unscale_":
            self._facts["events"].append("unscale")
        elif event == "before step":
            self._updated_in_scaler = False
        elif event == "after step" and not self._updated_in_scaler and self._is_mine(given):
            self._facts["events"].append("skipped")
            self._finish_step(given, skipped=True)

    @_never_raises
    def before_clip(self, kind: str, limit: float) -> None:
        self._facts["events"].append(f"clip by {kind} at {limit:g}")
        if self._open() is not None:
            self._write_gradients("unclipped")

    @_never_raises
    def after_clip(self, norm: Any, pairs: Any) -> None:
        if norm is not None:
            self._unclipped = norm
        if pairs is not None and self._updating:
            self._clipped = [*(self._clipped or []), *((p, g) for p, g in pairs if g is not None)]

    def _is_mine(self, optimizer: Any) -> bool:
        optimizer = getattr(optimizer, "optimizer", optimizer) if self._optimizers is None else optimizer
        if any(known is optimizer for known in self._known):
            return True
        if self._optimizers is not None:
            return False
        mine = any(id(parameter) in self._names for parameter in self._backend.held_parameters(optimizer))
        if mine:
            self._known.append(optimizer)
        return mine

    def _write_gradients(self, prefix: str) -> None:
        self._write_all(prefix, ((name, one.grad) for name, one in self._parameters() if one.grad is not None))

    @_never_raises
    def before_update(self, optimizer: Any, closure: bool) -> None:
        if not self._is_mine(optimizer):
            return
        self._updating, self._clipped = True, None
        self._computes_gradients = closure
        if self._open() is not None:
            named = self._named_settings(optimizer)
            self._facts["settings"] = {name: settings for name, _, settings in named}
            self._facts["steps_made"] = max((self._backend.steps_made(optimizer, p) for _, p, _ in named), default=0)
            self._facts["optimizer"] = self._known.index(optimizer)
            for name, parameter, _ in named:
                self._write(f"weights.{name}", parameter)
            self._write_state(optimizer, named, "state", "master")
            if not closure and not self._backend.clips_itself(optimizer):
                self._write_all("gradient", ((name, p.grad) for name, p, _ in named if p.grad is not None))
        if not closure:
            self._norm = self._norm_of_gradients(optimizer)

    def _norm_of_gradients(self, optimizer: Any) -> Any:
        held = self._backend.held_parameters(optimizer)
        return self._backend.total_norm([p.grad for p in held if p.grad is not None])

    def _named_settings(self, optimizer: Any) -> list[tuple[str, Any, dict[str, Any]]]:
        # paddle gives an optimizer the running statistics of batch norms as well, which it never moves.
        return [
            (self._names.get(id(parameter), f"unnamed.{place}"), parameter, settings)
            for place, (parameter, settings) in enumerate(self._backend.optimizer_settings(optimizer))
            if id(parameter) in self._names or self._backend.trainable(parameter)
        ]

    def _write_state(self, optimizer: Any, named: list[tuple[str, Any, Any]], state: str, master: str) -> None:
        for name, parameter, _ in named:
            kept = self._backend.master_weight(optimizer, parameter)
            if kept is not None:
                self._write(f"{master}.{name}", kept)
            for quantity, value in self._backend.optimizer_averages(optimizer, parameter):
                self._write(f"{state}.{quantity}.{name}", value)

    @_never_raises
    def after_update(self, optimizer: Any) -> None:
        self._updated_in_scaler = True
        if self._updating and self._is_mine(optimizer):
            self._facts["events"].append("update")
            if self._computes_gradients:
                self._norm = self._norm_of_gradients(optimizer)
            self._finish_step(optimizer, skipped=False)

    def _finish_step(self, optimizer: Any, skipped: bool) -> None:
        self._updating = False
        norms = {} if skipped else {"gradient_norm": self._norm}
        if self._clipped is not None:
            clipped = self._backend.total_norm([gradient for _, gradient in self._clipped])
            norms = {"gradient_norm": clipped, "unclipped_norm": self._norm}
        elif self._unclipped is not None:
            norms["unclipped_norm"] = self._unclipped
        sums = self._backend.sums([*(loss for loss, _ in self._losses), *norms.values()])
        scales = [scale for _, scale in self._losses]
        numbers: dict[str, Any] = {"step": self.step, "gradient_norm": None, "calls": self.calls, "skipped": skipped}
        numbers["losses"] = [loss / scale for loss, scale in zip(sums, scales, strict=False)]
        numbers |= dict(zip(norms, sums[len(scales) :], strict=True))
        numbers |= {
            "scale": max(scales, default=1.0),
            "rates": sorted(set(self._backend.learning_rates(optimizer)), reverse=True)[:8],
        }
        numbers["optimizer"] = next((i for i, known in enumerate(self._known) if known is optimizer), 0)
        if self._stream is not None:
            named = self._named_settings(optimizer)
            if self._clipped is not None:
                self._write_all("gradient", ((self._names[id(p)], g) for p, g in self._clipped if id(p) in self._names))
            self._write_all("gradient", ((name, p.grad) for name, p, _ in named if p.grad is not None))
            self._write_all("updated", ((name, p) for name, p, _ in named))
            self._write_state(optimizer, named, "updated_state", "updated_master")
            for model_name, model in self._models.items():
                buffers = self._backend.floating_buffers(model).items()
                self._write_all("buffer", ((name_in(model_name, key), buffer) for key, buffer in buffers))
            path = step_path(self._folder, self.step)
            write_json(metadata_path(path), {**self._facts, "numbers": _finite(numbers)})
            self._file.pop_all().close()
            self._stream = None
        if has_line(self.step):
            self._numbers.write(json.dumps(_finite(numbers)) + "\n")
            self._numbers.flush()
        self.step += 1
        self._clear()


def name_in(model: str, key: str) -> str:
    """The name of what a model holds: `NAME:KEY` in a recording of several models, which have names."""
    return f"{model}:{key}" if model else key


def _by_position(logits: np.ndarray, labels: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits with a row for each position; and for each row its label, or the probabilities of its classes.

    The frameworks have the classes on other axes, and labels of other shapes, for one and the same loss.
    """
    classes = logits.shape[axis]
    are_labels = labels.size * classes == logits.size
    labels = labels if are_labels else np.moveaxis(labels, axis, -1).reshape(-1, classes)
    return np.moveaxis(logits, axis, -1).reshape(-1, classes), labels.reshape(-1) if are_labels else labels


def _finite(numbers: dict[str, Any]) -> dict[str, Any]:
    """NaN and infinities as text, which strict JSON has no numbers for."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return str(value) if isinstance(value, float) and not np.isfinite(value) else value

    return {name: plain(value) for name, value in numbers.items()}
