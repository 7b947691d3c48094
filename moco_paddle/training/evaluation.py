"""Evaluation of frozen features: k-nearest-neighbour and linear classification, top-k accuracy, feature extraction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F


@paddle.no_grad()
def knn_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    features: Tensor,
    labels: Tensor,
    k: int = 20,
    temperature: float = 0.07,
    chunk_size: int = 256,
) -> float:
    """Return the top-1 accuracy, in percent, of a weighted k-nearest-neighbour classifier.

    Wu et al. (arXiv 1805.01978, section 3.4): a neighbour of cosine similarity s votes for its label with the weight
    exp(s / temperature). All neighbours as near as the k-th vote, and among labels with equal votes the lowest wins, so
    that the result does not depend on any order.

    Args:
        train_features: `[M, D]`, need not be normalised.
        train_labels: integers `[M]`, from 0.
        features: `[N, D]`, the ones to classify.
        labels: integers `[N]`, their true labels.
        k: number of neighbours, all of them where there are fewer.
        temperature: of the weights.
        chunk_size: number of features compared at a time; limits the memory.

    Raises:
        ValueError: where shapes do not belong together, or there is nothing to compare.
    """
    _check_features("train", train_features, train_labels)
    _check_features("evaluation", features, labels)
    num_classes = int(train_labels.max()) + 1
    train_features, features = F.normalize(train_features, axis=1), F.normalize(features, axis=1)
    correct = 0
    for start in range(0, features.shape[0], chunk_size):
        similarity = features[start : start + chunk_size] @ train_features.T
        nearest = similarity.topk(min(k, train_features.shape[0]), axis=1)[0]
        is_neighbour = similarity >= nearest[:, -1:]
        query, neighbour = is_neighbour.nonzero().unbind(axis=1)
        votes = paddle.zeros([similarity.shape[0] * num_classes], dtype=similarity.dtype)
        weight = (similarity.masked_select(is_neighbour) / temperature).exp()
        votes.index_add_(query * num_classes + train_labels[neighbour], 0, weight)
        predicted = _lowest_argmax(votes.reshape([-1, num_classes]))
        correct += int((predicted == labels[start : start + chunk_size]).sum())
    return 100.0 * correct / features.shape[0]


@paddle.no_grad()
def linear_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    features: Tensor,
    labels: Tensor,
    steps: int = 200,
    learning_rate: float = 1.0,
    momentum: float = 0.9,
) -> float:
    """Return the top-1 accuracy, in percent, of a linear classifier trained on frozen features.

    A softmax classifier that starts at zero takes `steps` steps of momentum SGD on all training features at once; the
    features are standardised by the training features' mean and deviation, as a batch norm without affine part before
    the classifier would. Nothing is drawn at random.

    Args:
        train_features: `[M, D]`.
        train_labels: integers `[M]`, from 0.
        features: `[N, D]`, the ones to classify.
        labels: integers `[N]`, their true labels.
        steps: of the optimizer.
        learning_rate: of every step.
        momentum: of SGD.

    Raises:
        ValueError: where shapes do not belong together, or there is nothing to classify.
    """
    _check_features("train", train_features, train_labels)
    _check_features("evaluation", features, labels)
    mean, scale = train_features.mean(axis=0), train_features.std(axis=0) + 1e-6
    train_features, features = (train_features - mean) / scale, (features - mean) / scale
    classes = int(train_labels.max()) + 1
    target = F.one_hot(train_labels, classes).astype(train_features.dtype)
    weight = paddle.zeros([features.shape[1], classes], dtype=train_features.dtype)
    bias = paddle.zeros([classes], dtype=train_features.dtype)
    velocity_weight, velocity_bias = paddle.zeros_like(weight), paddle.zeros_like(bias)
    for _ in range(steps):
        residual = (F.softmax(train_features @ weight + bias, axis=1) - target) / train_features.shape[0]
        velocity_weight = momentum * velocity_weight + train_features.T @ residual
        velocity_bias = momentum * velocity_bias + residual.sum(axis=0)
        weight = weight - learning_rate * velocity_weight
        bias = bias - learning_rate * velocity_bias
    return topk_accuracy(features @ weight + bias, labels, topk=(1,))[0]


@paddle.no_grad()
def topk_accuracy(logits: Tensor, labels: Tensor, topk: Sequence[int] = (1, 5)) -> list[float]:
    """Return, for each k of `topk`, the percentage of rows of `logits`, `[N, C]`, with the label among the k largest.

    In a tie the lower class index wins; a label whose logit is NaN counts as missed, any other NaN as larger.

    Raises:
        ValueError: where shapes do not belong together, there is no row, or a label is no class.
    """
    _check_features("evaluation", logits, labels)
    if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[1]:
        raise ValueError(f"labels must be classes from 0 to {logits.shape[1] - 1}")
    own = logits.take_along_axis(labels[:, None], axis=1)
    classes = paddle.arange(logits.shape[1])
    ahead = (~(logits <= own)) | ((logits == own) & (classes < labels[:, None]))
    rank = ahead.sum(axis=1)
    return [100.0 * int((rank < min(k, logits.shape[1])).sum()) / logits.shape[0] for k in topk]


@paddle.no_grad()
def extract_features(encoder: nn.Layer, loader: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return the features `[N, D]` (below the head, in eval mode) and labels `[N]` of all (images, labels) batches.

    The images go to the encoder's device and dtype; its mode is restored afterwards.

    Raises:
        ValueError: where the loader yields nothing.
    """
    parameter = next(iter(encoder.parameters()))
    was_training = encoder.training
    encoder.eval()
    features, labels = [], []
    for images, batch_labels in loader:
        # diff: the images are on the current device already, where paddle's loader puts them.
        features.append(encoder.forward_features(images.astype(parameter.dtype)))
        labels.append(batch_labels)
    # diff: paddle 2.6's train() takes no argument.
    if was_training:
        encoder.train()
    if not features:
        raise ValueError("the loader holds no images to extract features from")
    return paddle.concat(features), paddle.concat(labels)


def _lowest_argmax(votes: Tensor) -> Tensor:
    """Return the index of the largest value in every row of `[N, C]`, the lowest where several are as large."""
    classes = paddle.arange(votes.shape[1])
    is_largest = votes == votes.amax(axis=1, keepdim=True)
    # diff: paddle 2.6's where() takes tensors alone.
    return paddle.where(is_largest, classes, paddle.full_like(classes, votes.shape[1])).amin(axis=1)


def _check_features(name: str, features: Tensor, labels: Tensor) -> None:
    if features.ndim != 2 or labels.ndim != 1 or features.shape[0] != labels.shape[0] or features.shape[0] == 0:
        raise ValueError(
            f"{name}: expected features [N, D] and labels [N] with N > 0, "
            f"got {list(features.shape)} and {list(labels.shape)}"
        )
