"""Losses with another scale, another direction or other targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twinalign.selftest.catalogue import in_case, in_model
from twinalign.selftest.places import CasePlace, Find, ModelPlace, component
from twinalign.selftest.survey import Survey


def _loss(such: Callable[[Survey], Any] = lambda survey: True) -> Find:
    return component("loss", such, needs="loss")


def _calls(*names: str) -> Find:
    return _loss(lambda survey: survey.loss_functions & set(names))


def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change a loss, or every part of it."""
    return lambda losses: {k: change(v) for k, v in losses.items()} if isinstance(losses, Mapping) else change(losses)


@in_case("loss", _loss(), causes=("loss_reduction", "loss_factor"))
def loss_summed(place: CasePlace) -> None:
    """The loss is summed over the batch, not averaged."""

    def run(original: Callable[..., Any], outputs: Any, inputs: Mapping[str, Any], framework: str) -> Any:
        batch = next(iter(inputs.values())).shape[0]
        return _each(lambda loss: loss * batch)(original(outputs, inputs, framework))

    place.around("loss", run)


@in_case("loss", _loss(), causes=("loss_factor", "factor_wrong", "factor_forgotten", "output_scaled"))
def loss_halved(place: CasePlace) -> None:
    """The loss lacks a factor of two."""
    place.result("loss", _each(lambda loss: loss * 0.5))


_NAMES = ("temperature", "temp", "tau")


def _temperature(model: Any) -> str | None:
    return next((name for name in _NAMES if isinstance(getattr(model, name, None), float)), None)


@in_model(
    "loss",
    lambda survey: "" if "loss" in survey.stages and _temperature(survey.model) else None,
    causes=("loss_temperature",),
    named="loss",
)
def loss_temperature(place: ModelPlace) -> None:
    """The temperature is half as high."""
    name = _temperature(place.model) or ""
    setattr(place.model, name, getattr(place.model, name) / 2)


@in_case("loss", _calls("normalize"), causes=("normalize_missing",))
def loss_without_normalisation(place: CasePlace) -> None:
    """The loss does not normalise what it compares."""
    place.during("loss", {"normalize": lambda original, x, *_, **__: x * 1})


@in_case("loss", _calls("normalize"), causes=("normalize_axis",))
def loss_normalises_over_batch(place: CasePlace) -> None:
    """The loss normalises over the batch, not over the features."""
    place.during("loss", {"normalize": lambda original, x, *_, **__: original(x, axis=0)})


@in_case("loss", _calls("logsumexp"), causes=("reduction_axis", "axis_wrong"))
def loss_over_wrong_axis(place: CasePlace) -> None:
    """The loss compares over the wrong axis."""
    place.during("loss", {"logsumexp": lambda original, x, *_, **__: original(x, axis=0)})


@in_case("loss", _calls("take_along_axis", "cross_entropy"), causes=("labels_shifted",))
def loss_labels_shifted(place: CasePlace) -> None:
    """The labels belong to the sample beside."""

    def shift(original: Callable[..., Any], x: Any, labels: Any, *others: Any, **keywords: Any) -> Any:
        return original(x, labels.roll(1, axis=0), *others, **keywords)

    place.during("loss", {"take_along_axis": shift, "cross_entropy": shift})


@in_case("loss", _calls("cross_entropy"), causes=("label_smoothing",))
def loss_labels_smoothed(place: CasePlace) -> None:
    """The labels are smoothed by 0.1."""
    place.during(
        "loss",
        {"cross_entropy": lambda original, *arguments, **keywords: original(*arguments, label_smoothing=0.1)},
    )


def _has_several_outputs(survey: Survey) -> bool:
    outputs = survey.outputs
    if not isinstance(outputs, Mapping) or len(outputs) < 2:
        return False
    first, second = list(outputs.values())[:2]
    return list(first.shape) == list(second.shape)


@in_case("loss", _loss(_has_several_outputs), causes=("loss_arguments_swapped",))
def loss_outputs_exchanged(place: CasePlace) -> None:
    """The loss takes the first two outputs for each other."""

    def run(original: Callable[..., Any], outputs: Any, inputs: Any, framework: str) -> Any:
        first, second = list(outputs)[:2]
        return original({**outputs, first: outputs[second], second: outputs[first]}, inputs, framework)

    place.around("loss", run)


def _has_parts(survey: Survey) -> bool:
    return isinstance(survey.losses, Mapping) and "loss" in survey.losses and len(survey.losses) > 2


@in_case("loss", _loss(_has_parts), causes=("residual_missing", "term_missing"))
def loss_one_sided(place: CasePlace) -> None:
    """Only the first half of a symmetrised loss is taken."""

    def one_side(losses: Mapping[str, Any]) -> Mapping[str, Any]:
        first = next(value for name, value in losses.items() if name != "loss")
        return {**losses, "loss": first * 1}

    place.result("loss", one_side)
