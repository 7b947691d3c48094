"""Hypotheses about metrics: scale, rows, ties, classes, neighbours."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.explain.calls import Call
from twinalign.explain.metric import MetricHypothesis, MetricSubject, Numbers, OutputsHypothesis
from twinalign.explain.registry import Variant, register
from twinalign.locate.metric_values import PART, parts

Outputs = list[np.ndarray]


def _each(change: Callable[[float], float]) -> Callable[[Numbers], Numbers]:
    """Change every lone number."""
    return lambda numbers: {n: np.asarray(change(float(v))) if v.ndim == 0 else v for n, v in numbers.items()}


@register
class Percent(MetricHypothesis):
    """A share for percent, or the other way round."""

    id = "percent"
    text = "the metric is a share where it should be percent, or percent where it should be a share"
    rank = -1

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """Both ways."""
        yield subject.with_numbers("divided by 100", _each(lambda value: value / 100))
        yield subject.with_numbers("times 100", _each(lambda value: value * 100))


@register
class MetricError(MetricHypothesis):
    """What is wrong for what is right."""

    id = "metric_error"
    text = "the metric is the error, not the accuracy"
    rank = -1

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """Of percent, and of shares."""
        yield subject.with_numbers("100 - it", _each(lambda value: 100 - value))
        yield subject.with_numbers("1 - it", _each(lambda value: 1 - value))


@register
class MetricNames(MetricHypothesis):
    """top-1 for top-5."""

    id = "metric_names"
    text = "the metric's numbers have each other's names"
    difference = "accuracy_metric"
    rank = -1

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """Any two exchanged."""
        for one, other in itertools.combinations(subject.lone, 2):
            yield subject.with_numbers(f"{one} and {other}", functools.partial(_exchanged, one, other))


def _exchanged(one: str, other: str, numbers: Numbers) -> Numbers:
    names = {one: other, other: one}

    def source(name: str) -> str:
        own, _, part = name.partition(PART)
        return names.get(own, own) + (PART + part if part else "")

    return {name: numbers[source(name)] for name in numbers}


@register
class MetricFactor(MetricHypothesis):
    """A sum for a mean, or divided by another number."""

    id = "metric_factor"
    text = "the metric is multiplied by a number"
    rank = 1

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """By the number of samples or one more or less, by that of classes, by 2."""
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
                yield subject.with_numbers(text, _each(functools.partial(_product, factor)))


def _product(factor: float, value: float) -> float:
    return factor * value


@register
class MetricLowest(OutputsHypothesis):
    """argmin for argmax."""

    id = "metric_lowest"
    text = "the lowest output counts as the prediction, not the highest"

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """One way."""
        yield subject.with_rows("", lambda outputs, labels: ([-output for output in outputs], labels))


@register
class MetricLabels(OutputsHypothesis):
    """Labels that do not belong to the outputs."""

    id = "metric_labels"
    text = "the outputs are held against other labels"
    difference = "accuracy_metric"

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """Of the samples beside, counted from 1, in the reversed order, all the first."""
        for shift in (1, -1, 2, -2):
            yield subject.with_rows(f"of the samples {shift:+d} beside", functools.partial(_rolled, shift))
        yield subject.with_rows("one too high", lambda outputs, labels: (outputs, labels + 1))
        yield subject.with_rows("one too low", lambda outputs, labels: (outputs, labels - 1))
        yield subject.with_rows("in the reversed order", lambda outputs, labels: (outputs, labels[::-1].copy()))
        yield subject.with_rows(
            "all that of the first", lambda outputs, labels: (outputs, np.full_like(labels, labels[0]))
        )


def _rolled(shift: int, outputs: Outputs, labels: np.ndarray) -> tuple[Outputs, np.ndarray]:
    return outputs, np.roll(labels, shift)


@register
class MetricDropLast(OutputsHypothesis):
    """Rows that do not count."""

    id = "metric_drop_last"
    text = "some samples do not count: the last ones, or those of an incomplete batch"
    difference = "dataloader_defaults"

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """The last ones, the first ones, up to the half."""
        count = len(subject.labels)
        for left_out in range(1, count // 2 + 1):
            for place, rows in (("last", slice(None, count - left_out)), ("first", slice(left_out, None))):
                detail = f"the {place} {left_out}"
                yield subject.with_rows(detail, functools.partial(_rows, rows))
        for size in range(2, count):
            yield subject.with_rows(f"the last batch, of less than {size}", functools.partial(_whole_batches, size))


def _rows(rows: slice, outputs: Outputs, labels: np.ndarray) -> tuple[Outputs, np.ndarray]:
    return [output[rows] for output in outputs], labels[rows]


def _whole_batches(size: int, outputs: Outputs, labels: np.ndarray) -> tuple[Outputs, np.ndarray]:
    return _rows(slice(None, len(labels) // size * size), outputs, labels)


@register
class MetricMeanOfBatches(OutputsHypothesis):
    """The last batch counts as much as the others."""

    id = "metric_mean_of_batches"
    text = "the metric is averaged over batches, of which the last is smaller and counts as much"
    difference = "dataloader_defaults"

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """Batches of every size."""
        count = len(subject.labels)
        for size in range(1, count):
            if count % size:
                yield _grouped(subject, f"batches of {size}", functools.partial(_batches, size))


@register
class MetricMeanOfClasses(OutputsHypothesis):
    """Balanced accuracy."""

    id = "metric_mean_of_classes"
    text = "the metric is averaged over classes, each counting as much"

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """One way."""
        yield _grouped(subject, "", lambda labels: [np.flatnonzero(labels == label) for label in np.unique(labels)])


def _grouped(subject: MetricSubject, detail: str, groups: Callable[[np.ndarray], list[np.ndarray]]) -> Variant:
    from twinalign.explain.component import Replaced

    return Replaced(detail, subject, {"groups": groups})


def _batches(size: int, labels: np.ndarray) -> list[np.ndarray]:
    return np.split(np.arange(len(labels)), range(size, len(labels), size))


@register
class MetricTies(OutputsHypothesis):
    """Of equal outputs the last wins, or the label's own."""

    id = "metric_ties"
    text = "of equal outputs another one wins"
    difference = "topk_ties"

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """The first, the last, the label's own, any but that."""

        def nudged(outputs: Outputs, labels: np.ndarray, by: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Any:
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
            yield subject.with_rows(detail, functools.partial(nudged, by=by))


@register
class MetricSoftmax(OutputsHypothesis):
    """Logits for probabilities, or a temperature."""

    id = "metric_softmax"
    text = "the outputs are passed through another function before they are measured"

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """Softmax, its logarithm, a sigmoid; temperatures; rows of unit length."""
        functions: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "softmax": _softmax,
            "log-softmax": lambda x: np.log(_softmax(x)),
            "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
            "rows of unit length": lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
        }
        functions |= {
            f"temperature {t:g}": functools.partial(np.multiply, 1 / t) for t in (0.07, 0.1, 0.2, 0.5, 2.0, 10.0)
        }
        for detail, function in functions.items():
            yield subject.with_rows(detail, functools.partial(_through, function))


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _through(
    function: Callable[[np.ndarray], np.ndarray], outputs: Outputs, labels: np.ndarray
) -> tuple[Outputs, np.ndarray]:
    return [function(output) for output in outputs], labels


@register
class MetricTopK(MetricHypothesis):
    """Another k."""

    id = "metric_top_k"
    text = "the metric looks at another number of classes or neighbours"

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """Where it asks for the largest: one fewer or more, twice, half, usual numbers; of outputs, any k."""
        changes: dict[str, Callable[[int], int]] = {
            "one fewer": lambda k: max(1, k - 1),
            "one more": lambda k: k + 1,
            "twice as many": lambda k: 2 * k,
            "half as many": lambda k: max(1, k // 2),
        }
        changes |= {f"{n}": functools.partial(_constant, n) for n in (*range(1, 31), 50, 100, 200)}
        for detail, change in changes.items():
            yield subject.with_calls(detail, functools.partial(_other_k, change))
        if subject.outputs is not None and subject.outputs[0].ndim == 2:
            yield from _other_accuracies(subject)


def _constant(value: int, k: int) -> int:
    return value


def _other_k(change: Callable[[int], int], call: Call) -> Any:
    if call.name not in ("topk", "kthvalue"):
        return call.run()
    asked = "k" if "k" in call.arguments else "1"  # by place, where the call gives it so
    size = call["input"].shape[call.get("dim", -1)]
    return call.run(**{asked: min(change(int(call[asked])), size)})


def _other_accuracies(subject: MetricSubject) -> Iterator[Variant]:
    """A number that is the accuracy of the k largest for one k, and of another number of them in the port."""
    assert subject.outputs is not None
    output, labels = subject.outputs[0], subject.labels
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.max() >= output.shape[1]:
        return
    own = output[np.arange(len(labels)), labels][:, None]
    classes = np.arange(output.shape[1])
    for wins in (classes < labels[:, None], classes > labels[:, None], classes < 0):
        ahead = ((output > own) | ((output == own) & wins)).sum(axis=1)
        for scale, name in itertools.product((100.0, 1.0), subject.lone):
            of_k = {k: _shares(subject, name, scale * (ahead < k)) for k in range(1, output.shape[1])}
            known = [
                k
                for k, numbers in of_k.items()
                if all(abs(subject.reference[n] - v) <= 1e-6 * scale for n, v in numbers.items())
            ]
            for k, numbers in of_k.items() if known else ():
                yield subject.with_numbers(f"{name}: {k} for {known[0]}", functools.partial(_with_numbers, numbers))


def _shares(subject: MetricSubject, name: str, right: np.ndarray) -> Numbers:
    """The mean over all rows and over each part of them, by the names that the results have."""
    found = {name: np.asarray(right.mean())}
    found |= {f"{name}{PART}{i}": np.asarray(right[rows].mean()) for i, rows in enumerate(parts(len(right)))}
    return {key: value for key, value in found.items() if key in subject.reference}


def _with_numbers(changed: Numbers, numbers: Numbers) -> Numbers:
    return {**numbers, **changed}


@register
class MetricNormalize(MetricHypothesis):
    """Features of any length."""

    id = "metric_normalize"
    text = "features are compared as they are, not scaled to unit length"

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """Not at all, along another axis, by another norm."""
        yield subject.with_calls("", lambda call: call["input"] * 1 if call.name == "normalize" else call.run())
        yield subject.with_calls(
            "but along the other axis", lambda call: call.run(dim=0) if call.name == "normalize" else call.run()
        )
        yield subject.with_calls(
            "but to a sum of 1", lambda call: call.run(p=1.0) if call.name == "normalize" else call.run()
        )


@register
class MetricTemperature(MetricHypothesis):
    """Another temperature of a weighted vote, or plain votes."""

    id = "metric_temperature"
    text = "the votes of neighbours, or the outputs, are weighted with another temperature"

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """Votes that all count as much; the temperature forgotten; usual ones."""
        yield subject.with_calls("all votes are equal", _equal_votes)
        for value in (1.0, 0.07, 0.1, 0.2, 0.04, 0.05, 0.5):
            yield subject.with_calls(f"{value:g}", functools.partial(_other_divisor, value))


def _equal_votes(call: Call) -> Any:
    return call.run() * 0 + 1 if call.name == "exp" else call.run()


def _other_divisor(value: float, call: Call) -> Any:
    if call.name in ("div", "truediv", "divide") and isinstance(call.get("other"), float):
        return call.run(other=value)
    return call.run()


@register
class EvaluationMode(MetricHypothesis):
    """Batch statistics and dropout while evaluating."""

    id = "evaluation_mode"
    text = "the model is evaluated in training mode"
    rank = 1

    def of(self, subject: MetricSubject) -> Iterator[Variant]:
        """One way, for an evaluation as a whole."""
        from twinalign.explain.component import Replaced

        if subject.outputs is None:
            yield Replaced("", subject, {"training": True})
