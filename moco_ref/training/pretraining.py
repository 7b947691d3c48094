"""Pre-training: the loop and its step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from moco_common.data.loaders import PretrainingLoader
from moco_common.training.reporting import StepRecord
from moco_ref.distributed import gather_objects, gather_values, unwrapped
from moco_ref.models.moco import MoCo
from moco_ref.training.precision import Precision, first_layer_not_finite
from moco_ref.training.schedule import adjust_learning_rate, adjust_moco_momentum


def train(
    model: MoCo,
    loader: PretrainingLoader,
    optimizer: Optimizer,
    args: Any,
    start: tuple[int, int] = (0, 0),
    on_step: Callable[[StepRecord], None] | None = None,
    on_epoch: Callable[[int], None] | None = None,
    precision: Precision | None = None,
) -> None:
    """Train `model` to the end of epoch `args.epochs`.

    Args:
        model: moves in place and stays in training mode.
        loader: gives (view 1, view 2, index); `set_epoch(epoch, start)` chooses where it begins.
        optimizer: moves in place; its learning rate is set before every step.
        args: has `lr` (the peak, as `adjust_learning_rate` has it), `epochs`, `warmup_epochs`, `moco_m` and
            `moco_m_cos` (whether the MoCo momentum rises to 1 or stays).
        start: epoch and iteration to begin with.
        on_step: called with the record of every step.
        on_epoch: called with the number of finished epochs at the end of each.
        precision: how the model computes; None for float32 (or the dtype that it has).

    Raises:
        FloatingPointError: the loss is not finite; the model keeps its earlier state, except for the statistics.
    """
    model.train()
    first_epoch, first_iteration = start
    for epoch in range(first_epoch, args.epochs):
        loader.set_epoch(epoch, first_iteration)
        last_time = time.perf_counter()
        for iteration, (view1, view2, _) in enumerate(loader, start=first_iteration):
            read_time = time.perf_counter()
            loss, learning_rate, momentum = train_step(
                model, optimizer, view1, view2, epoch + iteration / len(loader), args, precision
            )
            now = time.perf_counter()
            if on_step is not None:
                costs = read_time - last_time, now - last_time
                on_step(StepRecord(epoch, iteration, loss, learning_rate, momentum, *costs))
            last_time = now
        first_iteration = 0
        if on_epoch is not None:
            on_epoch(epoch + 1)


def train_step(
    model: MoCo,
    optimizer: Optimizer,
    view1: Tensor,
    view2: Tensor,
    epoch: float,
    args: Any,
    precision: Precision | None = None,
) -> tuple[float, float, float]:
    """Make one step at the fractional `epoch`; return loss (the mean over the ranks), learning rate and MoCo momentum.

    Raises:
        FloatingPointError: the loss or a gradient is not finite on some rank, and no loss scale can be lowered.
    """
    learning_rate = adjust_learning_rate(optimizer, epoch, args)
    momentum = adjust_moco_momentum(epoch, args) if args.moco_m_cos else args.moco_m
    parameter = next(iter(model.parameters()))
    view1, view2 = (view.to(parameter.device, parameter.dtype) for view in (view1, view2))
    precision = precision or Precision("fp32", model)
    with precision.context():
        loss = model(view1, view2, momentum)
    # Every rank has its own loss, and all must know of one that is not finite.
    losses = [value for (value,) in gather_values([loss.item()], loss)]
    loss_value = sum(losses) / len(losses)
    if not math.isfinite(loss_value):
        raise _not_finite(f"the loss is {loss_value}", unwrapped(model), view1, view2, epoch)
    optimizer.zero_grad()
    precision.step(loss, optimizer)
    if precision.overflow is not None and precision.scaler is None:
        what = f"the gradient of {precision.overflow} is not finite"
        raise _not_finite(what, unwrapped(model), view1, view2, epoch)
    return loss_value, learning_rate, momentum


def _not_finite(what: str, model: MoCo, view1: Tensor, view2: Tensor, epoch: float) -> FloatingPointError:
    """Return the error that names the first layer whose output is not finite, and its rank if there are several.

    Batch norm and keys spread such values to all ranks; they come from the rank whose layer is first in the model.
    """
    # A MoCo momentum of 1 leaves the momentum encoder where it is.
    layers = gather_objects(first_layer_not_finite(model, view1, view2, 1.0))
    order = [name for name, _ in model.named_modules()]
    found = [(order.index(layer), of) for of, layer in enumerate(layers) if layer is not None]
    where = f", first in {order[min(found)[0]]}" if found else ""
    whose = f" of rank {min(found)[1]}" if found and len(layers) > 1 else ""
    place = f"at epoch {epoch:.4f}{where}{whose}"
    return FloatingPointError(f"{what} {place}; a lower --lr may help, or another --precision")
