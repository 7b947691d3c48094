"""Training loops that go another way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from twinalign.averaging import averaging_method
from twinalign.patching import family, replaced
from twinalign.selftest.catalogue import in_case
from twinalign.selftest.places import CasePlace, component
from twinalign.selftest.survey import Survey

TRAINING = component("train", lambda survey: True, needs="train")


def _patched(place: CasePlace, method: str, replacement: Callable[..., Any]) -> None:
    """Let `replacement(original, optimizer, *arguments)` take the calls of a method of all optimizers in training."""

    def run(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        base = place.paddle.optimizer.Optimizer
        with contextlib.ExitStack() as stack:
            for kind in family(base):
                if method in vars(kind):
                    stack.enter_context(replaced(kind, method, _bound(vars(kind)[method], replacement)))
            return original(*arguments, **keywords)

    place.around("train", run)


def _bound(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return replacement(original, self, *arguments, **keywords)

    return call


@in_case("train", TRAINING, causes=("training_rate",))
def training_rate_higher(place: CasePlace) -> None:
    """Training runs at a rate that is a tenth higher than it says."""
    _patched(place, "set_lr", lambda original, optimizer, rate: original(optimizer, 1.1 * rate))


@in_case("train", TRAINING, causes=("gradients_accumulate",))
def training_keeps_gradients(place: CasePlace) -> None:
    """Gradients are not cleared between steps."""
    _patched(place, "clear_grad", lambda original, optimizer, *_, **__: None)


@in_case("train", TRAINING, causes=("step_skipped",))
def training_skips_steps(place: CasePlace) -> None:
    """Every other optimizer step is left out."""
    counts: dict[int, int] = {}

    def step(original: Callable[..., Any], optimizer: Any) -> None:
        counts[id(optimizer)] = counts.get(id(optimizer), 0) + 1
        if counts[id(optimizer)] % 2:
            original(optimizer)

    _patched(place, "step", step)


@in_case("train", TRAINING, causes=("evaluation_mode",))
def training_in_evaluation_mode(place: CasePlace) -> None:
    """Training runs in evaluation mode."""

    def run(original: Callable[..., Any], framework: str, model: Any, *others: Any, **keywords: Any) -> Any:
        model.eval()
        object.__setattr__(model, "train", lambda: None)
        try:
            return original(framework, model, *others, **keywords)
        finally:
            object.__delattr__(model, "train")

    place.around("train", run)


def _averages(survey: Survey) -> bool:
    return survey.averaging_method() is not None


@in_case("train", component("train", _averages, needs="train"), causes=("ema_inverted",))
def training_averages_inversely(place: CasePlace) -> None:
    """In training the averaged network takes 1 - m of itself."""

    def run(original: Callable[..., Any], framework: str, model: Any, *others: Any, **keywords: Any) -> Any:
        name = averaging_method(model) or ""
        update = getattr(model, name)
        object.__setattr__(model, name, lambda m: update(1 - m))
        try:
            return original(framework, model, *others, **keywords)
        finally:
            object.__delattr__(model, name)

    place.around("train", run)


@in_case("train", TRAINING, causes=("curve_scaled",))
def training_reports_half(place: CasePlace) -> None:
    """The loss curve shows half the loss."""

    def run(
        original: Callable[..., Any], framework: str, model: Any, record: Any, *others: Any, **keywords: Any
    ) -> Any:
        return original(framework, model, _Halved(record), *others, **keywords)

    place.around("train", run)


class _Halved:
    """A record to which half the loss is told."""

    def __init__(self, record: Any) -> None:
        self._record = record

    def __call__(self, name: str, value: Any) -> None:
        self._record(name, value / 2 if name == "loss" else value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)
