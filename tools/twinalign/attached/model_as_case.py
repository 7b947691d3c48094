"""A model of two attached trainers as a `Case`, so that what searches a case searches it too."""

import functools
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.attached.attachment import assign_state
from twinalign.attached.named_arguments import replaced_arguments
from twinalign.attached.script_again import Captured, run_again
from twinalign.backends import load_backend
from twinalign.case.definition import Case
from twinalign.conversion.rename_rules import wrapper_rules
from twinalign.errors import InputError
from twinalign.files.attached_recordings import AttachedRecording, rename_rules

_captured: "weakref.WeakKeyDictionary[Any, Captured]" = weakref.WeakKeyDictionary()
"""Model -> what was captured with it; several are alive where one was built anew."""


class AttachedModel(Case):
    """One model of both trainers, on the reference's first weights and the batch of its first recorded call."""

    name = "attached"
    reference_recording = ""
    port_recording = ""
    model = ""
    """The name under which it is attached."""

    @functools.cached_property
    def _reference(self) -> AttachedRecording:
        return AttachedRecording.load(Path(self.reference_recording))

    @functools.cached_property
    def rename(self) -> Mapping[str, str]:  # type: ignore[override]
        """As the port's trainer was attached with, or for a wrapper around one of the models."""
        port = AttachedRecording.load(Path(self.port_recording))
        layouts = (one.about["layouts"][self.model] for one in (self._reference, port))
        return rename_rules(port, self.model) or wrapper_rules(*layouts)

    @functools.cached_property
    def _first_call(self) -> tuple[int, int, bool]:
        found = first_call(self._reference, self.model)
        if found is None:
            raise InputError(f"{self._reference.folder}: no recorded step calls a model attached as {self.model!r}")
        return found

    @property
    def train_mode(self) -> bool:  # type: ignore[override]
        return self._first_call[2]

    def reference(self) -> Any:
        """The torch trainer's model, by its script."""
        return self._built(self._reference)

    def reproduced(self) -> Any:
        """The paddle trainer's model, by its script."""
        return self._built(AttachedRecording.load(Path(self.port_recording)))

    def _built(self, recording: AttachedRecording) -> Any:
        backend = load_backend(recording.about["framework"])
        captured = run_again(recording.about.get("started"), backend, self.model, recording.folder)
        assign_state(backend, captured.model, recording.initial(self.model))
        _captured[captured.model] = captured
        return captured.model

    def inputs(self, rng: np.random.Generator) -> Mapping[str, np.ndarray]:
        """The tensors that the reference's model was given, whatever `rng`."""
        step, call, _ = self._first_call
        return self._reference.inputs(step, call)

    def forward(self, model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        """Call the model as its script does, with these tensors in place of the script's."""
        captured = _captured[model]
        call = captured.names, captured.arguments, captured.keywords
        arguments, keywords = replaced_arguments(load_backend(framework), *call, inputs, self._reference.folder)
        return model(*arguments, **keywords)


class AttachedTrainedModel(AttachedModel):
    """A model that an optimizer updates."""

    def optimizer(self, parameters: list[Any], framework: str) -> Any:
        """The script's own optimizer before its first step, without clipping, which belongs to the loop."""
        backend, wanted = load_backend(framework), {id(one) for one in parameters}
        for captured in _captured.values():
            if captured.optimizer is not None and wanted & {*map(id, backend.held_parameters(captured.optimizer))}:
                optimizer = captured.fresh_optimizer()
                backend.prepare_optimizer(optimizer)
                return optimizer
        raise AssertionError("the model was built by a script whose optimizer holds its parameters")


def first_call(recording: AttachedRecording, model: str) -> tuple[int, int, bool] | None:
    """Step, number of the call and whether it was in training mode; None if no recorded step calls the whole model."""
    for step in recording.steps:
        for number, call in enumerate(recording.facts(step).get("calls", ())):
            if call["model"] == model and not call.get("part"):
                return step, number, bool(call["training"])
    return None
