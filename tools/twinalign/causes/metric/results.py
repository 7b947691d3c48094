"""What becomes of a metric's numbers: unit, sign, name, factor."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator

import numpy as np

from twinalign.causes.metric.subject import MetricSubject, Numbers, metric_cause
from twinalign.causes.registry import Variant
from twinalign.replay.metric import PART


def _each(change: Callable[[float], float]) -> Callable[[Numbers], Numbers]:
    """Change every lone number."""
    return lambda numbers: {n: np.asarray(change(float(v))) if v.ndim == 0 else v for n, v in numbers.items()}


@metric_cause(rank=-1)
def percent(subject: MetricSubject) -> Iterator[Variant]:
    """The metric is a share where it should be percent, or percent where it should be a share."""
    yield subject.variant("divided by 100", finish=_each(lambda value: value / 100))
    yield subject.variant("times 100", finish=_each(lambda value: value * 100))


@metric_cause(rank=-1)
def metric_error(subject: MetricSubject) -> Iterator[Variant]:
    """The metric is the error, not the accuracy."""
    yield subject.variant("100 - it", finish=_each(lambda value: 100 - value))
    yield subject.variant("1 - it", finish=_each(lambda value: 1 - value))


@metric_cause(difference="accuracy_metric", rank=-1)
def metric_names(subject: MetricSubject) -> Iterator[Variant]:
    """The metric's numbers have each other's names."""
    for one, other in itertools.combinations(subject.lone, 2):
        yield subject.variant(f"{one} and {other}", finish=functools.partial(_exchanged, one, other))


def _exchanged(one: str, other: str, numbers: Numbers) -> Numbers:
    names = {one: other, other: one}

    def source(name: str) -> str:
        own, _, part = name.partition(PART)
        return names.get(own, own) + (PART + part if part else "")

    return {name: numbers[source(name)] for name in numbers}


@metric_cause(rank=1)
def metric_factor(subject: MetricSubject) -> Iterator[Variant]:
    """The metric is multiplied by a number."""
    count = len(subject.labels)
    if not count:
        return
    classes = int(subject.labels.max()) + 1 if subject.labels.dtype.kind in "iu" else 0
    for factor, text in (
        (count, "the number of samples"),
        (1 / count, "1 over the number of samples"),
        (count / (count - 1) if count > 1 else 1, "n/(n-1)"),
        (count / (count + 1), "n/(n+1)"),
        (classes, "the number of classes"),
        (2, "2"),
        (0.5, "1/2"),
    ):
        if factor not in (0, 1):
            yield subject.variant(text, finish=_each(functools.partial(operator.mul, factor)))
