"""Metrics that count differently."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinalign.case.definition import Case
from twinalign.patching import replaced
from twinalign.planted_faults.case_contents import CaseContents
from twinalign.planted_faults.catalogue import in_case
from twinalign.planted_faults.fault_sites import CaseSite, Original, change_result, replace_method, through
from twinalign.planted_faults.faults.samples import labels_of
from twinalign.planted_faults.where_to_plant import Find, component


def _metric(such: Callable[[Case], Any] = lambda case: True) -> Find:
    return component("metric", lambda contents: such(contents.metric_case), needs="metric")  # type: ignore[arg-type]


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


in_case("metric", _metric(), "percent", id="metric_share_for_percent").add(
    "Accuracies are shares, not percent",
    lambda site: site.result(_method(site.case), _numbers(lambda value: value / 100)),
)
in_case("metric", _metric(_counts), "metric_labels", id="metric_labels_shifted").add(
    "The metric takes the labels of the samples beside",
    replace_method("metric", lambda original, found, labels, framework: original(found, np.roll(labels, 1), framework)),
)
in_case("metric", _metric(_counts), "metric_lowest", id="metric_takes_lowest").add(
    "The metric takes the lowest logit for the prediction",
    replace_method("metric", lambda original, outputs, labels, framework: original(-outputs, labels, framework)),
)
in_case("metric", _metric(_counts), "metric_drop_last", id="metric_last_sample_lost").add(
    "The metric leaves the last sample out",
    replace_method("metric", lambda original, found, labels, framework: original(found[:-1], labels[:-1], framework)),
)


@in_case("metric", _metric(_evaluates), "metric_top_k")
def metric_of_fewer_neighbours(site: CaseSite) -> None:
    """The metric looks at one neighbour (or class) fewer."""

    def topk(original: Original, x: Any, k: Any, *others: Any, **keywords: Any) -> Any:
        return original(x, max(1, int(k) - 1), *others, **keywords)

    site.during("evaluate", {"topk": topk})


in_case("metric", _metric(_evaluates), "metric_normalize", id="metric_without_normalisation").add(
    "The metric compares features that are not normalised",
    lambda site: site.during("evaluate", {"normalize": lambda original, x, *_, **__: x * 1}),
)


@in_case("metric", _metric(_evaluates), "metric_names")
@through(CaseSite.result, "evaluate")
def metric_numbers_exchanged(site: CaseSite, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first two accuracies change places."""
    names = [name for name, value in found.items() if np.ndim(value) == 0][:2]
    return {**found, **dict(zip(names, [found[name] for name in names[::-1]], strict=True))}


@in_case("metric", _metric(_evaluates), "evaluation_mode")
@through(CaseSite.around, "evaluate")
def metric_in_training_mode(site: CaseSite, original: Original, model: Any, *arguments: Any) -> Any:
    """The metric is taken in training mode."""
    model.train()
    with replaced(model, "eval", lambda: None):
        return original(model, *arguments)


in_case("metric", _metric(), "metric_error", id="metric_error_for_accuracy").add(
    "The metric is the share of wrong predictions",
    lambda site: site.result(_method(site.case), _numbers(lambda value: 100 - value)),
)
in_case("metric", _metric(_counts), "metric_factor", id="metric_halved").add(
    "The metric is half as large", change_result("metric", _numbers(lambda value: value / 2))
)


def _averaged(site: CaseSite, groups: Callable[[np.ndarray], list[np.ndarray]]) -> None:
    """Average the metric over groups of samples, given as their numbers."""

    def run(original: Original, outputs: Any, labels: np.ndarray, framework: str) -> dict[str, float]:
        found = [original(outputs[rows], labels[rows], framework) for rows in groups(labels)]
        return {name: float(np.mean([numbers[name] for numbers in found])) for name in found[0]}

    site.around("metric", run)


in_case("metric", _metric(_counts), "metric_mean_of_batches", id="metric_averaged_over_batches").add(
    "The metric is averaged over batches of five, the last of which is smaller",
    lambda site: _averaged(site, lambda labels: np.array_split(np.arange(len(labels)), range(5, len(labels), 5))),
)


def _with_uneven_classes(contents: CaseContents) -> str | None:
    """The metric, where the classes have different numbers of samples."""
    counts = set(Counter(labels_of(contents, "val")).values()) if "val" in contents.samples else set()
    return _metric(_counts)(contents) if len(counts) > 1 else None


@in_case("metric", _with_uneven_classes, "metric_mean_of_classes")
def metric_averaged_over_classes(site: CaseSite) -> None:
    """The metric is averaged over the classes, however many samples they have."""
    _averaged(site, lambda labels: [np.flatnonzero(labels == label) for label in sorted(set(labels.tolist()))])
