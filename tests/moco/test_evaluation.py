"""Accuracies of both twins against scikit-learn and plain Python, ties and NaN included."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier


def features_and_labels(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.RandomState(seed)
    labels = generator.randint(0, 4, count)
    return generator.randn(count, 8) + 2 * np.eye(4, 8)[labels], labels


@pytest.mark.parametrize("chunk_size", [7, 1000])
def test_knn_equals_scikit_learn(twin, chunk_size: int) -> None:
    train, val = features_and_labels(200, 0), features_and_labels(90, 1)
    classifier = KNeighborsClassifier(20, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.07))
    expected = 100 * classifier.fit(*train).score(*val)
    assert 30 < expected < 95
    arrays = [twin.tensor(array) for array in (*train, *val)]
    knn_accuracy = twin.module("training.evaluation").knn_accuracy
    assert knn_accuracy(*arrays, k=20, temperature=0.07, chunk_size=chunk_size) == pytest.approx(expected, abs=1e-9)
    # It does depend on what it is told.
    assert knn_accuracy(*arrays, k=1) != pytest.approx(expected, abs=1e-9)


def test_knn_ties_depend_on_no_order(twin) -> None:
    # Two neighbours at the same distance with labels 1 and 0, k = 1: both vote, and the lower label wins.
    train, query = np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([[1.0, 0.0]])
    for labels in ([1, 0], [0, 1]):
        arrays = [twin.tensor(array) for array in (train, np.array(labels), query, np.array([0]))]
        assert twin.module("training.evaluation").knn_accuracy(*arrays, k=1) == 100.0


def test_knn_refuses_what_does_not_belong_together(twin) -> None:
    train, labels = twin.tensor(np.ones((3, 2))), twin.tensor(np.zeros(4, dtype="int64"))
    message = r"^train: expected features \[N, D\] and labels \[N\] with N > 0, got \[3, 2\] and \[4\]$"
    with pytest.raises(ValueError, match=message):
        twin.module("training.evaluation").knn_accuracy(train, labels, train, labels)


def ranked_accuracy(logits: np.ndarray, labels: np.ndarray, k: int) -> float:
    hits = 0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda index: (-row[index], index))
        hits += label in order[:k]
    return 100 * hits / len(logits)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_topk_equals_a_sort(twin, dtype: str) -> None:
    generator = np.random.RandomState(2)
    logits, labels = np.round(generator.randn(300, 7)).astype(dtype), generator.randint(0, 7, 300)
    assert any(len(set(row)) < 7 for row in logits.tolist())
    actual = twin.module("training.evaluation").topk_accuracy(twin.tensor(logits), twin.tensor(labels), (1, 2, 5, 9))
    assert actual == [ranked_accuracy(logits, labels, k) for k in (1, 2, 5, 9)]


def test_topk_counts_nan_as_wrong(twin) -> None:
    logits = np.array([[np.nan] * 3, [0.0, np.nan, -1.0], [0.0, 1.0, 2.0]])
    labels = twin.tensor(np.array([0, 0, 2]))
    accuracy = twin.module("training.evaluation").topk_accuracy(twin.tensor(logits), labels, (1, 2, 3))
    assert accuracy == pytest.approx([100 / 3, 200 / 3, 200 / 3])


def test_topk_refuses_a_label_that_is_no_class(twin) -> None:
    with pytest.raises(ValueError, match=r"^labels must be classes from 0 to 2$"):
        twin.module("training.evaluation").topk_accuracy(twin.tensor(np.zeros((1, 3))), twin.tensor(np.array([3])))


def test_features_are_those_of_eval_mode_in_order(twin) -> None:
    encoder = twin.module("models.moco").build_encoder("resnet18", num_classes=2)
    encoder.train()
    images = np.random.RandomState(0).randn(5, 3, 32, 32).astype("float32")
    batches = [(twin.tensor(images[i : i + 2]), twin.tensor(np.arange(5)[i : i + 2])) for i in (0, 2, 4)]
    before = twin.state(encoder)["bn1.running_mean"].copy()
    features, labels = twin.module("training.evaluation").extract_features(encoder, batches)
    assert twin.array(labels).tolist() == [0, 1, 2, 3, 4]
    assert twin.array(features).shape == (5, 512)
    assert encoder.training
    assert (twin.state(encoder)["bn1.running_mean"] == before).all()
    encoder.eval()
    whole = twin.array(encoder.forward_features(twin.tensor(images)))
    np.testing.assert_allclose(twin.array(features), whole, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"^the loader holds no images to extract features from$"):
        twin.module("training.evaluation").extract_features(encoder, [])
