"""The linear classifier on frozen features, against scikit-learn's and between the twins."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from moco_paddle.training.evaluation import linear_accuracy as paddle_accuracy
from moco_ref.training.evaluation import linear_accuracy as ref_accuracy


@pytest.fixture(scope="module")
def digits() -> list[np.ndarray]:
    """Training pixels and labels, validation pixels and labels."""
    x, y = load_digits(return_X_y=True)
    x = x[:, x.std(axis=0) > 0] * 1.0
    return [x[:1400], y[:1400], x[1400:], y[1400:]]


def test_both_twins_are_as_good_as_scikit_learns(digits: list[np.ndarray]) -> None:
    train, labels, val, val_labels = digits
    mean, scale = train.mean(axis=0), train.std(axis=0, ddof=1)
    model = LogisticRegression(C=10, max_iter=2000).fit((train - mean) / scale, labels)
    expected = 100 * model.score((val - mean) / scale, val_labels)
    ours = ref_accuracy(*(torch.from_numpy(array) for array in digits))
    theirs = paddle_accuracy(*(paddle.to_tensor(array) for array in digits))
    assert ours == theirs
    assert ours == pytest.approx(expected, abs=1.5)


def test_what_does_not_belong_together_is_refused(digits: list[np.ndarray]) -> None:
    train, labels, val, val_labels = (torch.from_numpy(array) for array in digits)
    with pytest.raises(ValueError, match="train: expected features"):
        ref_accuracy(train, labels[:3], val, val_labels)
