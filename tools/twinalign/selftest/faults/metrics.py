"""Metrics that count otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinalign.case import Case
from twinalign.selftest.catalogue import in_case
from twinalign.selftest.places import CasePlace, Find, component


def _metric(such: Callable[[Case], Any] = lambda case: True) -> Find:
    return component("metric", lambda survey: such(survey.metric_case), needs="metric")  # type: ignore[arg-type]


def _evaluates(case: Case) -> bool:
    return type(case).evaluate is not Case.evaluate


def _counts(case: Case) -> bool:
    return not _evaluates(case)


def _method(case: Any) -> str:
    return "evaluate" if _evaluates(case) else "metric"


def _numbers(change: Callable[[float], float]) -> Callable[[Any], Any]:
    """Change every lone number of a result."""

    def walk(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: walk(part) for key, part in value.items()}
        return change(float(value)) if np.ndim(value) == 0 else value

    return walk


@in_case("metric", _metric(), causes=("percent", "constant_factor", "metric_scale"))
def metric_share_for_percent(place: CasePlace) -> None:
    """Accuracies are shares, not percent."""
    place.result(_method(place.case), _numbers(lambda value: value / 100))


@in_case("metric", _metric(_counts), causes=("labels_shifted", "metric_labels"))
def metric_labels_shifted(place: CasePlace) -> None:
    """The metric takes the labels of the samples beside."""
    place.around(
        "metric", lambda original, outputs, labels, framework: original(outputs, np.roll(labels, 1), framework)
    )


@in_case("metric", _metric(_counts), causes=("metric_lowest", "argmax_reversed"))
def metric_takes_lowest(place: CasePlace) -> None:
    """The metric takes the lowest logit for the prediction."""
    place.around("metric", lambda original, outputs, labels, framework: original(-outputs, labels, framework))


@in_case("metric", _metric(_counts), causes=("metric_drop_last", "sample_missing"))
def metric_last_sample_lost(place: CasePlace) -> None:
    """The metric leaves the last sample out."""
    place.around("metric", lambda original, outputs, labels, framework: original(outputs[:-1], labels[:-1], framework))


@in_case("metric", _metric(_evaluates), causes=("metric_top_k", "topk"))
def metric_of_fewer_neighbours(place: CasePlace) -> None:
    """The metric looks at one neighbour (or class) fewer."""

    def topk(original: Callable[..., Any], x: Any, k: Any, *others: Any, **keywords: Any) -> Any:
        return original(x, max(1, int(k) - 1), *others, **keywords)

    place.during("evaluate", {"topk": topk})


@in_case("metric", _metric(_evaluates), causes=("normalize_missing", "metric_normalize"))
def metric_without_normalisation(place: CasePlace) -> None:
    """The metric compares features that are not normalised."""
    place.during("evaluate", {"normalize": lambda original, x, *_, **__: x * 1})


@in_case("metric", _metric(_evaluates), causes=("metric_names", "outputs_swapped"))
def metric_numbers_exchanged(place: CasePlace) -> None:
    """The first two accuracies change places."""

    def exchange(found: Mapping[str, Any]) -> Mapping[str, Any]:
        names = [name for name, value in found.items() if np.ndim(value) == 0][:2]
        return {**found, **dict(zip(names, [found[name] for name in names[::-1]], strict=True))}

    place.result("evaluate", exchange)


@in_case("metric", _metric(_evaluates), causes=("evaluation_mode", "train_mode"))
def metric_in_training_mode(place: CasePlace) -> None:
    """The metric is taken in training mode."""

    def run(original: Callable[..., Any], model: Any, *arguments: Any) -> Any:
        model.train()
        object.__setattr__(model, "eval", lambda: None)
        try:
            return original(model, *arguments)
        finally:
            object.__delattr__(model, "eval")

    place.around("evaluate", run)
