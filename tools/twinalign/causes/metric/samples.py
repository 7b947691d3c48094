"""Which samples a metric counts, with which labels and outputs."""

import functools
from collections.abc import Callable, Iterator

import numpy as np

from twinalign.causes.metric.subject import MetricSubject, metric_cause, outputs_cause
from twinalign.causes.registry import Variant

Outputs = list[np.ndarray]
Given = tuple[Outputs, np.ndarray]
"""Outputs and labels."""


@outputs_cause()
def metric_lowest(subject: MetricSubject) -> Iterator[Variant]:
    """The lowest output counts as the prediction, not the highest."""
    yield subject.variant("", take=lambda outputs, labels: ([-output for output in outputs], labels))


@outputs_cause(difference="accuracy_metric")
def metric_labels(subject: MetricSubject) -> Iterator[Variant]:
    """The outputs are compared with other labels."""
    changes: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        **{f"of the samples {shift:+d} beside": functools.partial(np.roll, shift=shift) for shift in (1, -1, 2, -2)},
        "one too high": lambda labels: labels + 1,
        "one too low": lambda labels: labels - 1,
        "in the reversed order": lambda labels: labels[::-1].copy(),
        "all that of the first": lambda labels: np.full_like(labels, labels[0]),
    }
    for detail, change in changes.items():
        yield subject.variant(detail, take=lambda outputs, labels, change=change: (outputs, change(labels)))


@outputs_cause(difference="dataloader_defaults")
def metric_drop_last(subject: MetricSubject) -> Iterator[Variant]:
    """Some samples do not count: the last ones, or those of an incomplete batch."""
    count = len(subject.labels)
    for left_out in range(1, count // 2 + 1):
        yield subject.variant(f"the last {left_out}", take=functools.partial(_rows, slice(None, count - left_out)))
        yield subject.variant(f"the first {left_out}", take=functools.partial(_rows, slice(left_out, None)))
    for size in range(2, count):
        yield subject.variant(f"the last batch, of less than {size}", take=functools.partial(_whole_batches, size))


def _rows(rows: slice, outputs: Outputs, labels: np.ndarray) -> Given:
    return [output[rows] for output in outputs], labels[rows]


def _whole_batches(size: int, outputs: Outputs, labels: np.ndarray) -> Given:
    return _rows(slice(None, len(labels) // size * size), outputs, labels)


@outputs_cause(difference="dataloader_defaults")
def metric_mean_of_batches(subject: MetricSubject) -> Iterator[Variant]:
    """The metric is averaged over batches, of which the last is smaller and counts as much."""
    count = len(subject.labels)
    for size in range(1, count):
        if count % size:
            yield subject.variant(f"batches of {size}", groups=functools.partial(_batches, size))


def _batches(size: int, labels: np.ndarray) -> list[np.ndarray]:
    return np.split(np.arange(len(labels)), range(size, len(labels), size))


@outputs_cause()
def metric_mean_of_classes(subject: MetricSubject) -> Iterator[Variant]:
    """The metric is averaged over classes, each counting as much."""
    yield subject.variant("", groups=lambda labels: [np.flatnonzero(labels == label) for label in np.unique(labels)])


@outputs_cause(difference="topk_ties")
def metric_ties(subject: MetricSubject) -> Iterator[Variant]:
    """Among equal outputs, another one counts as the prediction."""

    def nudged(outputs: Outputs, labels: np.ndarray, by: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Given:
        smallest = [np.min(np.diff(np.unique(output)), initial=1.0) for output in outputs]
        return [o + s * 1e-3 * by(o, labels) for o, s in zip(outputs, smallest, strict=True)], labels

    def order(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.arange(output.shape[1]) / output.shape[1]

    def own(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return (np.arange(output.shape[1]) == labels[:, None]).astype(float)

    for detail, by in (
        ("the last", order),
        ("the first", lambda output, labels: -order(output, labels)),
        ("the label's own", own),
        ("any but the label's own", lambda output, labels: -own(output, labels)),
    ):
        yield subject.variant(detail, take=functools.partial(nudged, by=by))


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return shares


_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "softmax": _softmax,
    "log-softmax": lambda x: np.log(_softmax(x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rows of unit length": lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
    **{f"temperature {t:g}": functools.partial(np.multiply, 1 / t) for t in (0.07, 0.1, 0.2, 0.5, 2.0, 10.0)},
}


@outputs_cause()
def metric_softmax(subject: MetricSubject) -> Iterator[Variant]:
    """The outputs are passed through another function before they are measured."""
    for detail, function in _FUNCTIONS.items():
        yield subject.variant(
            detail, take=lambda outputs, labels, f=function: ([f(output) for output in outputs], labels)
        )


@metric_cause(rank=1, where=lambda subject: subject.outputs is None)
def evaluation_mode(subject: MetricSubject) -> Iterator[Variant]:
    """The model is evaluated in training mode."""
    yield subject.variant("", training=True)
