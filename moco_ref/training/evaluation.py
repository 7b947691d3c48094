"""Evaluation of frozen features: k-nearest-neighbour and linear classification, top-k accuracy, feature extraction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@torch.no_grad()
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
    train_features, features = F.normalize(train_features, dim=1), F.normalize(features, dim=1)
    correct = 0
    for start in range(0, features.shape[0], chunk_size):
        similarity = features[start : start + chunk_size] @ train_features.T
        nearest = similarity.topk(min(k, train_features.shape[0]), dim=1)[0]
        is_neighbour = similarity >= nearest[:, -1:]
        query, neighbour = is_neighbour.nonzero().unbind(dim=1)
        votes = similarity.new_zeros(similarity.shape[0] * num_classes)
        weight = (similarity.masked_select(is_neighbour) / temperature).exp()
        votes.index_add_(0, query * num_classes + train_labels[neighbour], weight)
        predicted = _lowest_argmax(votes.reshape(-1, num_classes))
        correct += int((predicted == labels[start : start + chunk_size]).sum())
    return 100.0 * correct / features.shape[0]


@torch.no_grad()
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
    mean, scale = train_features.mean(dim=0), train_features.std(dim=0) + 1e-6
    train_features, features = (train_features - mean) / scale, (features - mean) / scale
    classes = int(train_labels.max()) + 1
    target = F.one_hot(train_labels, classes).to(train_features.dtype)
    weight = train_features.new_zeros(features.shape[1], classes)
    bias = train_features.new_zeros(classes)
    velocity_weight, velocity_bias = torch.zeros_like(weight), torch.zeros_like(bias)
    for _ in range(steps):
        residual = (F.softmax(train_features @ weight + bias, dim=1) - target) / train_features.shape[0]
        velocity_weight = momentum * velocity_weight + train_features.T @ residual
        velocity_bias = momentum * velocity_bias + residual.sum(dim=0)
        weight = weight - learning_rate * velocity_weight
        bias = bias - learning_rate * velocity_bias
    return topk_accuracy(features @ weight + bias, labels, topk=(1,))[0]


@torch.no_grad()
def topk_accuracy(logits: Tensor, labels: Tensor, topk: Sequence[int] = (1, 5)) -> list[float]:
    """Return, for each k of `topk`, the percentage of rows of `logits`, `[N, C]`, with the label among the k largest.

    In a tie the lower class index wins; a label whose logit is NaN counts as missed, any other NaN as larger.

    Raises:
        ValueError: where shapes do not belong together, there is no row, or a label is no class.
    """
    _check_features("evaluation", logits, labels)
    if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[1]:
        raise ValueError(f"labels must be classes from 0 to {logits.shape[1] - 1}")
    own = logits.gather(1, labels[:, None])
    classes = torch.arange(logits.shape[1], device=logits.device)
    ahead = (~(logits <= own)) | ((logits == own) & (classes < labels[:, None]))
    rank = ahead.sum(dim=1)
    return [100.0 * int((rank < min(k, logits.shape[1])).sum()) / logits.shape[0] for k in topk]


@torch.no_grad()
def extract_features(encoder: nn.Module, loader: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
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
        features.append(encoder.forward_features(images.to(parameter.device, parameter.dtype)))
        labels.append(batch_labels.to(parameter.device))
    encoder.train(was_training)
    if not features:
        raise ValueError("the loader holds no images to extract features from")
    return torch.cat(features), torch.cat(labels)


def _lowest_argmax(votes: Tensor) -> Tensor:
    """Return the index of the largest value in every row of `[N, C]`, the lowest where several are as large."""
    classes = torch.arange(votes.shape[1], device=votes.device)
    is_largest = votes == votes.amax(dim=1, keepdim=True)
    return torch.where(is_largest, classes, votes.shape[1]).amin(dim=1)


def _check_features(name: str, features: Tensor, labels: Tensor) -> None:
    if features.ndim != 2 or labels.ndim != 1 or features.shape[0] != labels.shape[0] or features.shape[0] == 0:
        raise ValueError(
            f"{name}: expected features [N, D] and labels [N] with N > 0, "
            f"got {list(features.shape)} and {list(labels.shape)}"
        )
