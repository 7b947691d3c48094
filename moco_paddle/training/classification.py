"""A classifier on an encoder: building it, training it with the encoder frozen or not, and evaluating it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.optimizer import Optimizer

from moco_common.data.loaders import PretrainingLoader
from moco_common.training.reporting import Accuracy, StepRecord
from moco_paddle.distributed import gather_values, unwrapped
from moco_paddle.models import initialization
from moco_paddle.models.drop_path import draw_paths
from moco_paddle.models.moco import build_encoder
from moco_paddle.training.evaluation import topk_accuracy
from moco_paddle.training.mixing import Mixing
from moco_paddle.training.optimizer import clip_gradients
from moco_paddle.training.schedule import adjust_learning_rate


def build_classifier(arch: str, num_classes: int, **options: Any) -> nn.Layer:
    """Build the encoder called `arch` with a linear classifier drawn from a normal of deviation 0.01, its bias 0."""
    model = build_encoder(arch, num_classes, **options)
    head = getattr(model, model.head_name)
    initialization.normal_(head.weight, std=0.01)
    initialization.constant_(head.bias, 0)
    return model


def freeze_encoder(model: nn.Layer) -> None:
    """Freeze everything but the classifier."""
    for key, parameter in model.named_parameters():
        parameter.stop_gradient = not key.startswith(f"{model.head_name}.")


def encoder_state(model: nn.Layer) -> dict[str, Tensor]:
    """Return copies of everything below the classifier, buffers included."""
    return {
        key: value.clone() for key, value in model.state_dict().items() if not key.startswith(f"{model.head_name}.")
    }


def check_encoder_unmoved(model: nn.Layer, before: dict[str, Tensor]) -> None:
    """Make sure that a linear classification has changed only the classifier.

    Raises:
        RuntimeError: an entry below the classifier has changed; the message names the first.
    """
    for key, value in encoder_state(model).items():
        if not bool(paddle.equal_all(value, before[key])):
            raise RuntimeError(f"{key} moved, and only the classifier should have")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross entropy, a scalar, of logits `[N, C]` and labels `[N]`, or shares of classes `[N, C]`."""
    # diff: paddle's cross_entropy stops at a log-probability of -64 on a CPU; logsumexp does not.
    if labels.ndim == 2:
        return (paddle.logsumexp(logits, axis=1) - (logits * labels).sum(axis=1)).mean()
    chosen = paddle.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return (paddle.logsumexp(logits, axis=1) - chosen).mean()


def train_classifier(
    model: nn.Layer,
    loader: PretrainingLoader,
    optimizer: Optimizer,
    args: Any,
    start: tuple[int, int] = (0, 0),
    on_step: Callable[[StepRecord], None] | None = None,
    on_epoch: Callable[[int], None] | None = None,
    frozen: bool = True,
    mixing: Mixing | None = None,
    clip_grad: float | None = None,
) -> None:
    """Train `model` to the end of epoch `args.epochs`.

    Args:
        model: moves in place; perhaps as `data_parallel` wraps it.
        loader: gives (view, label, index); `set_epoch(epoch, start)` chooses where it begins.
        optimizer: moves in place; its learning rate is set before every step.
        args: has `lr` (the peak), `epochs` and `warmup_epochs`; where the encoder trains, `seed` for its drop paths.
        start: epoch and iteration to begin with.
        on_step: called with the record of every step.
        on_epoch: called with the number of finished epochs at the end of each.
        frozen: whether the encoder stays as it is, in evaluation mode (batch statistics would move its buffers), and
            the rate changes once an epoch; both as in the official linear classification.
        mixing: what is done to every batch; None for nothing.
        clip_grad: as `train_step` has it.

    Raises:
        FloatingPointError: the loss is not finite on some rank.
    """
    first_epoch, first_iteration = start
    for epoch in range(first_epoch, args.epochs):
        # diff: paddle 2.6's train() takes no argument.
        if frozen:
            model.eval()
        else:
            model.train()
        loader.set_epoch(epoch, first_iteration)
        last_time = time.perf_counter()
        for iteration, (views, labels, _) in enumerate(loader, start=first_iteration):
            read_time = time.perf_counter()
            place = epoch if frozen else epoch + iteration / len(loader)
            learning_rate = adjust_learning_rate(optimizer, place, args)
            if mixing is not None:
                views, labels = mixing(views, labels, epoch, iteration)
            if not frozen:
                draw_paths(unwrapped(model), views.shape[0], args.seed, epoch, iteration)
            loss = train_step(model, optimizer, views, labels, clip_grad)
            now = time.perf_counter()
            if on_step is not None:
                costs = read_time - last_time, now - last_time
                on_step(StepRecord(epoch, iteration, loss, learning_rate, None, *costs))
            last_time = now
        first_iteration = 0
        if on_epoch is not None:
            on_epoch(epoch + 1)


def train_step(
    model: nn.Layer, optimizer: Optimizer, views: Tensor, labels: Tensor, clip_grad: float | None = None
) -> float:
    """Make one step; return the loss before it, the mean over the ranks.

    Args:
        model, optimizer: move in place.
        views: `[N, 3, H, W]`.
        labels: `[N]` or shares of classes `[N, C]`.
        clip_grad: the norm over all gradients that a larger one is scaled to; None for any norm.

    Raises:
        FloatingPointError: the loss is not finite, on whichever rank.
    """
    parameter = next(iter(model.parameters()))
    # diff: the views are on the current device already, where paddle's loader puts them.
    loss = cross_entropy(model(views.astype(parameter.dtype)), labels)
    losses = [value for (value,) in gather_values([loss.item()], loss)]
    loss_value = sum(losses) / len(losses)
    if not math.isfinite(loss_value):
        raise FloatingPointError(f"the loss is {loss_value}; a lower --lr may help")
    # diff: paddle's clear_grad() leaves zeros by default, which its optimizers treat as gradients.
    optimizer.clear_grad(set_to_zero=False)
    loss.backward()
    if clip_grad is not None:
        # diff: paddle's clip_grad_norm_ uses the inaccurate norms that `euclidean_norm` avoids.
        clip_gradients(model.parameters(), clip_grad)
    optimizer.step()
    return loss_value


@paddle.no_grad()
def validate(model: nn.Layer, loader: Iterable[tuple[Tensor, Tensor]]) -> Accuracy:
    """Return the result of `model` on all (images, labels) batches of all ranks; leaves it in evaluation mode.

    Raises:
        ValueError: the loader yields nothing.
    """
    logits, labels = compute_logits(model, loader)
    reached = *topk_accuracy(logits, labels, topk=(1, 5)), float(cross_entropy(logits, labels))
    counts, *of_ranks = np.array(gather_values([labels.shape[0], *reached], logits)).T
    return Accuracy(*(float(counts / counts.sum() @ values) for values in of_ranks))


@paddle.no_grad()
def compute_logits(model: nn.Layer, loader: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return logits `[N, C]` and labels `[N]` of all (images, labels) batches; leaves `model` in evaluation mode.

    Raises:
        ValueError: the loader yields nothing.
    """
    parameter = next(iter(model.parameters()))
    model.eval()
    logits, labels = [], []
    for images, batch_labels in loader:
        logits.append(model(images.astype(parameter.dtype)))
        labels.append(batch_labels)
    if not logits:
        raise ValueError("the loader holds no images to classify")
    return paddle.concat(logits), paddle.concat(labels)
