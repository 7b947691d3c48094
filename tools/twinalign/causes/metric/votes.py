"""How classes and neighbours are chosen and weighed: their number, lengths of features, temperatures."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import FunctionCall
from twinalign.causes.metric.subject import MetricSubject, Numbers, metric_cause
from twinalign.causes.registry import Variant
from twinalign.replay.metric import PART, parts


@metric_cause()
def metric_top_k(subject: MetricSubject) -> Iterator[Variant]:
    """The metric looks at another number of classes or neighbours."""
    changes: dict[str, Any] = {
        "one fewer": lambda k: max(1, k - 1),
        "one more": lambda k: k + 1,
        "twice as many": lambda k: 2 * k,
        "half as many": lambda k: max(1, k // 2),
    }
    changes |= {f"{n}": lambda k, n=n: n for n in (*range(1, 31), 50, 100, 200)}
    for detail, change in changes.items():
        yield subject.variant(detail, handle=functools.partial(_other_k, change))
    if subject.outputs is not None and subject.outputs[0].ndim == 2:
        yield from _other_accuracies(subject)


def _other_k(change: Callable[[int], int], call: FunctionCall) -> Any:
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
                yield subject.variant(
                    f"{name}: {k} for {known[0]}", finish=lambda values, changed=numbers: {**values, **changed}
                )


def _shares(subject: MetricSubject, name: str, right: np.ndarray) -> Numbers:
    """The mean over all rows and over each part of them, by the names that the results have."""
    found = {name: np.asarray(right.mean())}
    found |= {f"{name}{PART}{i}": np.asarray(right[rows].mean()) for i, rows in enumerate(parts(len(right)))}
    return {key: value for key, value in found.items() if key in subject.reference}


@metric_cause()
def metric_normalize(subject: MetricSubject) -> Iterator[Variant]:
    """Features are compared as they are, not scaled to unit length."""
    ways: dict[str, Callable[[FunctionCall], Any]] = {
        "": lambda call: call["input"] * 1,
        "but along the other axis": lambda call: call.run(dim=0),
        "but to a sum of 1": lambda call: call.run(p=1.0),
    }
    for detail, way in ways.items():
        yield subject.variant(detail, handle=lambda call, w=way: w(call) if call.name == "normalize" else call.run())


@metric_cause()
def metric_temperature(subject: MetricSubject) -> Iterator[Variant]:
    """The votes of neighbours, or the outputs, are weighted with another temperature."""
    yield subject.variant(
        "all votes are equal", handle=lambda call: call.run() * 0 + 1 if call.name == "exp" else call.run()
    )
    for value in (1.0, 0.07, 0.1, 0.2, 0.04, 0.05, 0.5):
        yield subject.variant(f"{value:g}", handle=functools.partial(_other_divisor, value))


def _other_divisor(value: float, call: FunctionCall) -> Any:
    if call.name in ("div", "truediv", "divide") and isinstance(call.get("other"), float):
        return call.run(other=value)
    return call.run()
