"""Metrics written out in numpy, right and wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Numbers = dict[str, float]


def top(outputs: np.ndarray, labels: np.ndarray, k: int, last_wins: bool = False) -> float:
    """Percent of rows with the label among the k largest; of equal ones the first is ahead."""
    if last_wins:
        outputs, labels = outputs[:, ::-1], outputs.shape[1] - 1 - labels
    order = np.argsort(-outputs, axis=1, kind="stable")[:, :k]
    return 100.0 * float((order == labels[:, None]).any(axis=1).mean())


def accuracies(outputs: np.ndarray, labels: np.ndarray) -> Numbers:
    return {"top1": top(outputs, labels, 1), "top3": top(outputs, labels, 3)}


def each(change: Callable[[float], float]) -> Callable[[np.ndarray, np.ndarray], Numbers]:
    return lambda outputs, labels: {name: change(value) for name, value in accuracies(outputs, labels).items()}


def of_groups(groups: list[np.ndarray], outputs: np.ndarray, labels: np.ndarray) -> Numbers:
    found = [accuracies(outputs[rows], labels[rows]) for rows in groups]
    return {name: float(np.mean([numbers[name] for numbers in found])) for name in found[0]}


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], Numbers]] = {
    "percent": each(lambda value: value / 100),
    "metric_error": each(lambda value: 100 - value),
    "metric_names": lambda o, labels: {"top1": top(o, labels, 3), "top3": top(o, labels, 1)},
    "metric_top_k": lambda o, labels: {"top1": top(o, labels, 1), "top3": top(o, labels, 4)},
    "metric_ties": lambda o, labels: {"top1": top(o, labels, 1, True), "top3": top(o, labels, 3, True)},
    "metric_lowest": lambda o, labels: accuracies(-o, labels),
    "metric_labels": lambda o, labels: accuracies(o, np.roll(labels, 1)),
    "metric_drop_last": lambda o, labels: accuracies(o[: len(o) // 4 * 4], labels[: len(o) // 4 * 4]),
    "metric_mean_of_batches": lambda o, labels: of_groups(np.split(np.arange(len(o)), range(4, len(o), 4)), o, labels),
    "metric_mean_of_classes": lambda o, labels: of_groups(
        [np.flatnonzero(labels == c) for c in np.unique(labels)], o, labels
    ),
    "unknown": lambda o, labels: {"top1": 41.3, "top3": 12.7},
}


def knn_accuracy(
    train: Any,
    train_labels: Any,
    features: Any,
    labels: Any,
    k: int,
    temperature: float = 0.07,
    normalized: bool = True,
    shift: int = 0,
) -> float:
    train, features = train.numpy(), features.numpy()
    train_labels, labels = train_labels.numpy(), labels.numpy()
    if normalized:
        train, features = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, features))
    similarity = features @ train.T
    right = 0
    for row, label in zip(similarity, labels, strict=True):
        nearest = np.argsort(-row)[shift : k + shift]
        votes = np.bincount(train_labels[nearest], np.exp(row[nearest] / temperature), minlength=4)
        right += int(votes.argmax() == label)
    return 100.0 * right / len(labels)
