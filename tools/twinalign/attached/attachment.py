"""`twinalign.attach`: hooks on a trainer's models, loss, clipping, scaler and optimizers."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.attached.named_arguments import named_arguments, replaced_arguments
from twinalign.attached.step_recorder import StepRecorder, name_in
from twinalign.backends import load_backend
from twinalign.backends.layer_classes import layer_classes
from twinalign.backends.protocol import Backend
from twinalign.case.moved_values import moved_at_random
from twinalign.conversion.checkpoint import read_checkpoint
from twinalign.conversion.convert_arrays import convert_state
from twinalign.conversion.rename_rules import wrapper_rules
from twinalign.errors import InputError
from twinalign.files.attached_recordings import ABOUT, FORMAT, INITIAL, AttachedRecording, array_stream, is_attached
from twinalign.files.recordings import write_json

PathLike = str | os.PathLike[str]
divert: Callable[[Mapping[str, Any]], Any] | None = None
"""Takes the models in place of a recording, while a script is run again to get them."""


def attach(
    model: Any,
    optimizer: Any = None,
    out: PathLike = "recordings/ref",
    steps: Iterable[int] = (0, 1, 2),
    *,
    layers: str | Sequence[str] = (),
    whole_layers: bool = False,
    weights: PathLike | None = None,
    feed: PathLike | None = None,
    rename: Mapping[str, str] | None = None,
    repeat: bool = False,
) -> Attachment:
    """Record the training of a torch or paddle model from inside its trainer, whose loop stays as it is.

    Every step of the optimizer has a line of numbers: losses, norms of the gradient, learning rates. The chosen `steps`
    are recorded whole: batches, outputs, gradients before and after clipping, weights and optimizer state before and
    after. Under torchrun or paddle.distributed.launch each process records into `out/rankN`.

    Args:
        model: the model, or a dictionary of several by name.
        optimizer: the optimizer or several; None: each that holds a parameter of a model.
        out: folder of the recording; an earlier one in it is replaced.
        steps: numbers of the steps to record whole, from 0.
        layers: patterns of paths of layers whose outputs are recorded in these steps.
        whole_layers: record them whole, not as samples and projections.
        weights: start from these weights: a checkpoint of this framework, or a recording of the other trainer, whose
            first weights are converted.
        feed: a recording of the other trainer, whose batches take the place of the model's own in the steps that it
            recorded, with the labels of `cross_entropy`. What passes through neither stays the trainer's own.
        rename: in the port's trainer, where layers have other names: `{reference name: paddle name}`, keys or prefixes;
            of several models, such a dictionary each under the model's name.
        repeat: change each weight by one unit in the last place: a second recording of the reference, which measures
            rounding.

    Returns:
        The attachment; `close()` ends it, as does the end of a `with` block or of the process.

    Raises:
        InputError: what is given is no model, or weights or feed do not fit it.
    """
    models = dict(model) if isinstance(model, Mapping) else {"": model}
    backend = _backend_of(models)
    if divert is not None:
        return divert(models)
    folder = _folder_of_rank(Path(out))
    inner = {name: backend.unwrapped(one) for name, one in models.items()}
    renamed: Any = dict(rename or {})
    renamed = {"": renamed} if "" in models else renamed
    if weights is not None:
        _load_weights(backend, inner, Path(weights), renamed)
    if repeat:
        for one in inner.values():
            assign_state(backend, one, moved_at_random(dict(backend.state_items(one)), 0))
    optimizers = None if optimizer is None else list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    patterns = [layers] if isinstance(layers, str) else list(layers)
    fed = None if feed is None else _recording_of_rank(Path(feed), folder)
    recorder = StepRecorder(backend, inner, optimizers, folder, frozenset(steps), whole_layers)
    recorder.begin(functools.partial(_write_beginning, backend, inner, folder, repeat, renamed))
    return Attachment(backend, models, recorder, patterns, fed)


def _processes() -> int:
    return int(os.environ.get("WORLD_SIZE") or os.environ.get("PADDLE_TRAINERS_NUM") or 1)


def _folder_of_rank(folder: Path) -> Path:
    rank = int(os.environ.get("RANK") or os.environ.get("PADDLE_TRAINER_ID") or 0)
    return folder / f"rank{rank}" if _processes() > 1 else folder


def _backend_of(models: Mapping[str, Any]) -> Backend:
    for framework in ("torch", "paddle"):
        if framework in sys.modules:
            backend = load_backend(framework)
            if all(backend.is_model(model) for model in models.values()):
                return backend
    kinds = ", ".join(type(model).__name__ for model in models.values())
    raise InputError(
        f"twinalign.attach: model is {kinds}; give a torch.nn.Module or a paddle.nn.Layer, or a dict of them"
    )


def _recording_of_rank(path: Path, own: Path) -> AttachedRecording:
    return AttachedRecording.load(path / own.name if (path / own.name / ABOUT).is_file() else path)


def assign_state(backend: Backend, model: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """In place, so that what optimizers and wrappers hold stays theirs."""
    for name, tensor in backend.state_tensors(model).items():
        if name in arrays:
            backend.assign(tensor, arrays[name])


def _load_weights(
    backend: Backend, models: Mapping[str, Any], path: Path, renamed: Mapping[str, Mapping[str, str]]
) -> None:
    recording = (
        AttachedRecording.load(path / "rank0" if (path / "rank0").is_dir() else path) if is_attached(path) else None
    )
    if recording is None and len(models) > 1:
        raise InputError(f"{path}: a checkpoint has the weights of one model; give weights= a recording")
    for name, model in models.items():
        layout = backend.describe_state(model)
        if recording is None:
            arrays = read_checkpoint(path).weights
            kept = {e["key"]: e for e in layout if e["persistent"]}
            shapes = {key: list(arrays[key].shape) for key in kept if key in arrays}
            wrong = [(key, "has another shape") for key in shapes if shapes[key] != list(kept[key]["shape"])]
            wrong += [(key, "is missing") for key in kept if kept[key]["role"] == "parameter" and key not in arrays]
            for key, what in wrong[:1]:
                raise InputError(f"{path}: {key} {what}; convert the checkpoint with `twinalign convert` first")
        else:
            arrays = recording.initial(name)
            if recording.about["framework"] != backend.FRAMEWORK:
                source = "ref" if recording.about["framework"] == "torch" else "paddle"
                theirs = recording.about["layouts"][name]
                rename = renamed.get(name) or wrapper_rules(
                    *((theirs, layout) if source == "ref" else (layout, theirs))
                )
                arrays = convert_state(arrays, theirs, layout, source=source, rename=rename).arrays
        assign_state(backend, model, arrays)


def _write_beginning(
    backend: Backend,
    models: Mapping[str, Any],
    folder: Path,
    repeat: bool,
    renamed: Mapping[str, Mapping[str, str]],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("step*.npz"), *folder.glob("step*.json"), folder / ABOUT, folder / INITIAL):
        old.unlink(missing_ok=True)
    with array_stream(folder / INITIAL) as stream:
        for name, model in models.items():
            for key, array in backend.state_items(model):
                stream.add(name_in(name, key), array)
    about = {
        "format": FORMAT,
        "framework": backend.FRAMEWORK,
        "versions": backend.versions(),
        "flags": backend.numerics_flags(),
        "repeat": repeat,
        "rename": renamed,
        "started": how_started(),
        "layer_classes": {
            kind: facts for model in models.values() for kind, facts in layer_classes(backend, model).items()
        },
        "layouts": {name: backend.describe_state(model) for name, model in models.items()},
    }
    write_json(folder / ABOUT, about)


def how_started() -> dict[str, Any] | None:
    """What it takes to run this process's script again, as JSON; None where there is none, as in a notebook."""
    main = sys.modules["__main__"]
    if not getattr(main, "__file__", None):
        return None
    return {
        "script": os.path.abspath(str(main.__file__)),
        "module": getattr(getattr(main, "__spec__", None), "name", ""),
        "arguments": sys.argv[1:],
        "folder": os.getcwd(),
        "path": [os.path.abspath(path) for path in sys.path],
        "python": sys.executable,
        "untouched": "TWINALIGN_ATTACH" in os.environ,
        "processes": _processes(),
    }


class _Hook:
    """A hook of a layer; copies and pickles of the layer do without it."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __deepcopy__(self, _: Any) -> _Hook:
        return _Hook(_nothing)

    def __reduce__(self) -> Any:
        return _Hook, (_nothing,)


def _nothing(*_: Any) -> None: ...


def _parts(backend: Backend, model: Any) -> list[tuple[str, Any]]:
    """Path and layer of what a trainer may call where it does not call the model as a whole."""
    layers = [(path, layer) for path, layer in backend.named_layers(model) if path and "." not in path]
    return [(path, layer) for path, layer in layers if backend.named_parameters(layer)]


class Attachment:
    """A trainer that is being recorded; `close()` ends the recording and takes every hook off."""

    def __init__(
        self,
        backend: Backend,
        models: Mapping[str, Any],
        recorder: StepRecorder,
        layers: Sequence[str],
        feed: AttachedRecording | None,
    ) -> None:
        self._backend, self._recorder, self._feed = backend, recorder, feed
        self._depth = self._backwards = 0
        self._labels: tuple[Any, Any, Any] = (None, None, None)
        """Step and call of the latest loss, the trainer's own labels, and what took their place."""
        self._stack = contextlib.ExitStack()
        recorder.on_end = self._stack.close
        whole = [backend.unwrapped(model) for model in models.values()]
        for (name, model), inner in zip(models.items(), whole, strict=True):
            parts = [(path, part) for path, part in _parts(backend, inner) if all(part is not one for one in whole)]
            for path, part in (("", model), *parts):
                before = _Hook(functools.partial(self._before_call, name, path, part if path else inner))
                after = _Hook(self._after_call)
                self._stack.callback(backend.watch_calls(part, before, after))
            for path, layer in backend.named_layers(inner):
                if path and any(fnmatch.fnmatchcase(path, pattern) for pattern in layers):
                    key = name_in(name, path)
                    hook = _Hook(lambda _, given, keywords, output, key=key: recorder.layer(key, output))
                    self._stack.callback(backend.watch_calls(layer, _Hook(_nothing), hook))
        self._stack.enter_context(backend.watching_updates(self._before_update, recorder.after_update))
        self._stack.enter_context(backend.watching_backward(self._before_backward, self._after_backward))
        self._stack.enter_context(backend.watching_cross_entropy(self._cross_entropy))
        self._stack.enter_context(backend.watching_clipping(recorder.before_clip, recorder.after_clip))
        self._stack.enter_context(backend.watching_scalers(recorder.scaler))

    def close(self) -> None:
        """End the recording; what was recorded stays."""
        self._recorder.finish()
        self._stack.close()

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _before_call(
        self, name: str, path: str, inner: Any, model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        self._depth += 1
        if self._depth > 1 or self._backwards or not self._is_training(inner):
            return None
        changed = None
        step, call = self._recorder.step, self._recorder.calls
        if self._feed is not None and step in self._feed.steps:
            given = self._feed.inputs(step, call)
            own = [name for name, _ in named_arguments(self._backend, inner, arguments, keywords)]
            changed = replaced_arguments(self._backend, own, arguments, keywords, given, self._feed.folder)
        seen = changed or (arguments, keywords)
        self._recorder.call(name, path, inner, lambda: named_arguments(self._backend, inner, *seen))
        return changed

    def _after_call(self, model: Any, arguments: Any, keywords: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and not self._backwards and self._is_training(model):
            self._recorder.output(output)

    def _before_update(self, optimizer: Any, closure: bool) -> None:
        self._depth = self._backwards = 0  # a call or a backward pass that raised has not ended
        self._recorder.before_update(optimizer, closure)

    def _before_backward(self) -> None:
        # Checkpointing calls layers again inside of a backward pass, and some begin one of their own in it.
        self._backwards += 1

    def _after_backward(self, tensor: Any) -> None:
        self._backwards -= 1
        if self._backwards == 0:
            self._recorder.backward(tensor)

    def _cross_entropy(self, logits: Any, labels: Any, settings: dict[str, Any]) -> Any:
        place = self._recorder.step, self._recorder.calls
        known = self._labels[0] == place and self._labels[1] is labels  # a second loss on the same ones
        fed = self._labels[2] if known else self._fed_labels(labels)
        self._labels = place, labels, fed
        self._recorder.cross_entropy(logits, labels if fed is None else fed, settings)
        return fed

    def _fed_labels(self, labels: Any) -> Any:
        """The reference's labels for this call; None where labels pass through the model, which is fed already."""
        step, call = self._recorder.step, self._recorder.calls - 1
        if self._feed is None or self._depth or not self._backend.is_recording_gradients():
            return None
        if step not in self._feed.steps:
            return None
        given = self._feed.arrays(step).get(f"call{call}.labels")
        if given is None or given.size != math.prod(labels.shape):
            return None
        return self._backend.to_tensor_like(given.reshape(tuple(labels.shape)), labels)

    def _is_training(self, model: Any) -> bool:
        """Not a validation in between: no gradients, in evaluation mode, of a model that is trained."""
        if model.training or self._backend.is_recording_gradients():
            return True
        return not any(self._backend.trainable(p) for p in self._backend.named_parameters(model).values())
