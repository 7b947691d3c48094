"""Causes in a metric: which samples and labels count, what is done to outputs, votes and the numbers themselves."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import FunctionCall
from twinalign.causes.component import enter_rows
from twinalign.causes.metric.subject import MetricSubject, Numbers
from twinalign.causes.registry import Variant
from twinalign.replay.evaluation_calls import rows_of
from twinalign.replay.metric import PART, parts

Outputs = list[np.ndarray]
Given = tuple[Outputs, np.ndarray]
"""Outputs and labels."""


def _each(change: Callable[[float], float]) -> Callable[[Numbers], Numbers]:
    return lambda numbers: {n: np.asarray(change(float(v))) if v.ndim == 0 else v for n, v in numbers.items()}


def _factors(subject: MetricSubject) -> dict[str, Callable[[float], float]]:
    count = len(subject.labels)
    classes = int(subject.labels.max()) + 1 if count and subject.labels.dtype.kind in "iu" else 0
    factors = {"the number of samples": count, "1 over the number of samples": 1 / max(count, 1)}
    factors |= {"n/(n-1)": count / (count - 1) if count > 1 else 1, "n/(n+1)": count / (count + 1)}
    factors |= {"the number of classes": classes, "2": 2, "1/2": 0.5}
    return {text: functools.partial(operator.mul, f) for text, f in factors.items() if count and f not in (0, 1)}


def _exchanged(one: str, other: str, numbers: Numbers) -> Numbers:
    names = {one: other, other: one}

    def source(name: str) -> str:
        own, _, part = name.partition(PART)
        return names.get(own, own) + (PART + part if part else "")

    return {name: numbers[source(name)] for name in numbers}


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _rows(rows: slice, outputs: Outputs, labels: np.ndarray) -> Given:
    return [rows_of(output, rows, len(labels)) for output in outputs], labels[rows]


def _fewer(subject: MetricSubject) -> dict[str, Callable[[Outputs, np.ndarray], Given]]:
    count = len(subject.labels)
    found: dict[str, Callable[[Outputs, np.ndarray], Given]] = {}
    for left_out in range(1, count // 2 + 1):
        found[f"the last {left_out}"] = functools.partial(_rows, slice(None, -left_out))
        found[f"the first {left_out}"] = functools.partial(_rows, slice(left_out, None))
    for size in range(2, count):
        found[f"the last batch, of less than {size}"] = functools.partial(  # of each part of the samples by itself
            lambda size, outputs, labels: _rows(slice(None, len(labels) // size * size), outputs, labels), size
        )
    return found


def _nudged(by: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[Outputs, np.ndarray], Given]:
    """Outputs moved by less than what lies between any two of them."""

    def take(outputs: Outputs, labels: np.ndarray) -> Given:
        smallest = [np.min(np.diff(np.unique(output)), initial=1.0) for output in outputs]
        return [o + s * 1e-3 * by(o, labels) for o, s in zip(outputs, smallest, strict=True)], labels

    return take


def _order(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.arange(output.shape[1]) / output.shape[1]


def _own(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (np.arange(output.shape[1]) == labels[:, None]).astype(float)


def _known(subject: MetricSubject) -> bool:
    """Whether what the metric is given is known, which it is not where an evaluation as a whole is examined."""
    return subject.outputs is not None


_TIES = {"difference": "topk_ties", "where": _known}
_LABELS = {"difference": "accuracy_metric", "where": _known}
_DROPPED = {"difference": "dataloader_defaults", "where": _known}
enter = functools.partial(enter_rows, "metric", MetricSubject)

enter("finish", (
    ("percent", "the metric is a share where it should be percent, or percent where it should be a share", {"rank": -1},
     lambda s: {"divided by 100": lambda value: value / 100, "times 100": lambda value: value * 100}),
    ("metric_error", "the metric is the error, not the accuracy", {"rank": -1},
     lambda s: {"100 - it": lambda value: 100 - value, "1 - it": lambda value: 1 - value}),
    ("metric_factor", "the metric is multiplied by a number", {"rank": 1}, _factors),
), of=_each)  # fmt: skip
enter("finish", (
    ("metric_names", "the metric's numbers have each other's names", {"difference": "accuracy_metric", "rank": -1},
     lambda s: {f"{one} and {other}": functools.partial(_exchanged, one, other)
                for one, other in itertools.combinations(s.lone, 2)}),
))  # fmt: skip
enter("take", (
    ("metric_lowest", "the lowest output counts as the prediction, not the highest", {"where": _known},
     lambda s: {"": operator.neg}),
    ("metric_softmax", "the outputs are passed through another function before they are measured", {"where": _known},
     lambda s: {"softmax": _softmax, "log-softmax": lambda x: np.log(_softmax(x)),
                "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
                "rows of unit length": lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
                **{f"temperature {t:g}": functools.partial(np.multiply, 1 / t)
                   for t in (0.07, 0.1, 0.2, 0.5, 2.0, 10.0)}}),
), of=lambda change: lambda outputs, labels: ([change(output) for output in outputs], labels))  # fmt: skip
enter("take", (
    ("metric_labels", "the outputs are compared with other labels", _LABELS,
     lambda s: {**{f"of the samples {by:+d} beside": functools.partial(np.roll, shift=by) for by in (1, -1, 2, -2)},
                "one too high": lambda labels: labels + 1, "one too low": lambda labels: labels - 1,
                "in the reversed order": lambda labels: labels[::-1].copy(),
                "all that of the first": lambda labels: np.full_like(labels, labels[0])}),
), of=lambda change: lambda outputs, labels: (outputs, change(labels)))  # fmt: skip
enter("take", (
    ("metric_drop_last", "some samples do not count: the last ones, or those of an incomplete batch", _DROPPED, _fewer),
    ("metric_ties", "among equal outputs, another one counts as the prediction", _TIES,
     lambda s: {"the last": _nudged(_order), "the first": _nudged(lambda *given: -_order(*given)),
                "the label's own": _nudged(_own), "any but the label's own": _nudged(lambda *given: -_own(*given))}),
))  # fmt: skip
enter("groups", (
    ("metric_mean_of_batches", "the metric is averaged over batches, of which the last is smaller and counts as much",
     _DROPPED, lambda s: {
         f"batches of {size}": lambda labels, n=size: np.split(np.arange(len(labels)), range(n, len(labels), n))
         for size in range(1, len(s.labels)) if len(s.labels) % size}),
    ("metric_mean_of_classes", "the metric is averaged over classes, each counting as much", {"where": _known},
     lambda s: {"": lambda labels: [np.flatnonzero(labels == label) for label in np.unique(labels)]}),
))  # fmt: skip
enter("training", (
    ("evaluation_mode", "the model is evaluated in training mode",
     {"rank": 1, "where": lambda subject: not _known(subject)}, lambda s: {"": True}),
))  # fmt: skip


def _other_k(change: Callable[[int], int], call: FunctionCall) -> Any:
    if call.name not in ("topk", "kthvalue"):
        return call.run()
    return call.run(k=min(change(int(call["k"])), call["input"].shape[call.get("dim", -1)]))


def _sizes(subject: MetricSubject) -> Iterator[tuple[str, Any] | Variant]:
    sizes: dict[str, Any] = {
        "one fewer": lambda k: max(1, k - 1),
        "one more": lambda k: k + 1,
        "twice as many": lambda k: 2 * k,
        "half as many": lambda k: max(1, k // 2),
    }
    sizes |= {f"{n}": lambda k, n=n: n for n in (*range(1, 31), 50, 100, 200)}
    yield from ((text, functools.partial(_other_k, change)) for text, change in sizes.items())
    if subject.outputs is not None and subject.outputs[0].ndim == 2:
        yield from _other_accuracies(subject)


def _other_accuracies(subject: MetricSubject) -> Iterator[Variant]:
    """A number that is the accuracy of the k largest for one k, and of another number of them in the port."""
    assert subject.outputs is not None
    output, labels = subject.outputs[0], subject.labels
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.max() >= output.shape[1]:
        return
    classes, every = np.arange(output.shape[1]), np.arange(len(labels))
    measured = {"": (every, every), **{f"{PART}{number}": rows for number, rows in enumerate(parts(len(labels)))}}
    for wins in (np.less, np.greater, None):
        ahead = {part: _ahead(output[rows], labels[own], classes, wins) for part, (rows, own) in measured.items()}
        for scale, name in itertools.product((100.0, 1.0), subject.lone):
            of_k = {
                k: {name + part: np.asarray((scale * (places < k)).mean()) for part, places in ahead.items()}
                for k in range(1, output.shape[1])
            }
            theirs = subject.reference
            far = {k: max(abs(n - numbers.get(key, n)) for key, n in theirs.items()) for k, numbers in of_k.items()}
            known = [k for k in of_k if far[k] <= 1e-6 * scale]
            for k, numbers in of_k.items() if known else ():
                own = {key: value for key, value in numbers.items() if key in theirs}
                yield subject.variant(f"{name}: {k} for {known[0]}", finish=lambda values, own=own: {**values, **own})


def _ahead(output: np.ndarray, labels: np.ndarray, classes: np.ndarray, wins: Any) -> np.ndarray:
    """How many classes come before a sample's own; `wins` tells which of those that are as large do."""
    own = np.take_along_axis(output, labels[:, None], 1)
    ties = wins(classes, labels[:, None]) if wins is not None else False
    return np.asarray(((output > own) | ((output == own) & ties)).sum(axis=1))


def _other_divisor(value: float, call: FunctionCall) -> Any:
    if call.name in ("div", "truediv", "divide") and isinstance(call.get("other"), float):
        return call.run(other=value)
    return call.run()


def _in_calls(name: str, way: Callable[[FunctionCall], Any]) -> Callable[[FunctionCall], Any]:
    return lambda call: way(call) if call.name == name else call.run()


enter("handle", (
    ("metric_top_k", "the metric looks at another number of classes or neighbours", {}, _sizes),
    ("metric_normalize", "features are compared as they are, not scaled to unit length", {},
     lambda s: {"": _in_calls("normalize", lambda call: call["input"] * 1),
                "but along the other axis": _in_calls("normalize", lambda call: call.run(dim=0)),
                "but to a sum of 1": _in_calls("normalize", lambda call: call.run(p=1.0))}),
    ("metric_temperature", "the votes of neighbours, or the outputs, are weighted with another temperature", {},
     lambda s: {"all votes are equal": _in_calls("exp", lambda call: call.run() * 0 + 1),
                **{f"{value:g}": functools.partial(_other_divisor, value)
                   for value in (1.0, 0.07, 0.1, 0.2, 0.04, 0.05, 0.5)}}),
))  # fmt: skip
