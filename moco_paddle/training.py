"""Pre-training: the loop, and the program `python -m moco_paddle.training DATA`.

Options have the official release's names and meanings where they still make sense. Order of the samples and draws of
the augmentation depend on --seed and the sample's address alone, so that a run that is stopped and resumed on one CPU
process ends in the same bits as one that was not.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import paddle
from paddle import Tensor
from paddle.optimizer import Optimizer

from .builder import ARCHITECTURES, MoCo, build_moco
from .checkpoint import SUFFIX, load_checkpoint, save_checkpoint
from .data import PretrainingLoader, build_pretraining_loader
from .optimizer import OPTIMIZERS, build_optimizer
from .schedule import adjust_learning_rate, adjust_moco_momentum


@dataclass(frozen=True)
class StepRecord:
    """What is known of a training step after it.

    Attributes:
        epoch, iteration: its place, both from 0.
        loss: of its batch, before the step.
        learning_rate, moco_momentum: that the step was made with.
        reader_cost, batch_cost: seconds waited for the batch, and seconds of the whole step with the wait.
    """

    epoch: int
    iteration: int
    loss: float
    learning_rate: float
    moco_momentum: float
    reader_cost: float
    batch_cost: float


def train(
    model: MoCo,
    loader: PretrainingLoader,
    optimizer: Optimizer,
    args: Any,
    start: tuple[int, int] = (0, 0),
    on_step: Callable[[StepRecord], None] | None = None,
    on_epoch: Callable[[int], None] | None = None,
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

    Raises:
        FloatingPointError: the loss is not finite; the model keeps the state before that step but for the statistics.
    """
    model.train()
    first_epoch, first_iteration = start
    for epoch in range(first_epoch, args.epochs):
        loader.set_epoch(epoch, first_iteration)
        last_time = time.perf_counter()
        for iteration, (view1, view2, _) in enumerate(loader, start=first_iteration):
            read_time = time.perf_counter()
            loss, learning_rate, momentum = train_step(
                model, optimizer, view1, view2, epoch + iteration / len(loader), args
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
    model: MoCo, optimizer: Optimizer, view1: Tensor, view2: Tensor, epoch: float, args: Any
) -> tuple[float, float, float]:
    """Make one step at the fractional `epoch`; return loss, learning rate and MoCo momentum.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    learning_rate = adjust_learning_rate(optimizer, epoch, args)
    momentum = adjust_moco_momentum(epoch, args) if args.moco_m_cos else args.moco_m
    parameter = next(iter(model.parameters()))
    # diff: the views are on the current device already, where paddle's loader puts them.
    view1, view2 = (view.astype(parameter.dtype) for view in (view1, view2))
    loss = model(view1, view2, momentum)
    loss_value = loss.item()
    if not math.isfinite(loss_value):
        raise FloatingPointError(f"the loss is {loss_value} at epoch {epoch:.4f}; a lower --lr may help")
    # diff: paddle's clear_grad() leaves zeros by default, which its optimizers take for gradients.
    optimizer.clear_grad(set_to_zero=False)
    loss.backward()
    optimizer.step()
    return loss_value, learning_rate, momentum


class LogWriter:
    """Prints a line every `print_freq` steps, with costs averaged over the steps since the line before."""

    def __init__(self, iterations: int, epochs: int, batch_size: int, print_freq: int) -> None:
        self.iterations = iterations
        self.epochs = epochs
        self.batch_size = batch_size
        self.print_freq = print_freq
        self.pending: list[StepRecord] = []

    def __call__(self, record: StepRecord) -> None:
        """Take a step's record, and print a line where it is time."""
        self.pending.append(record)
        if record.iteration % self.print_freq == 0 or record.iteration == self.iterations - 1:
            print(self.line(), flush=True)
            self.pending.clear()

    def line(self) -> str:
        """Return the line for the steps that wait for one."""
        last = self.pending[-1]
        reader_cost = sum(record.reader_cost for record in self.pending) / len(self.pending)
        batch_cost = sum(record.batch_cost for record in self.pending) / len(self.pending)
        steps_left = (self.epochs - last.epoch) * self.iterations - last.iteration - 1
        return (
            f"[epoch {last.epoch}, iter {last.iteration}] lr: {last.learning_rate:.6g}, loss: {last.loss:.5f}, "
            f"avg_reader_cost: {reader_cost:.5f} sec, avg_batch_cost: {batch_cost:.5f} sec, "
            f"avg_ips: {self.batch_size / batch_cost:.2f} images/sec, "
            f"eta: {timedelta(seconds=round(batch_cost * steps_left))}"
        )


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options; defaults are the official ones, but for --workers and --seed."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.training", description="MoCo v3 pre-training")
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="folder with one sub-folder of pictures a class")
    add("-a", "--arch", default="resnet50", choices=list(ARCHITECTURES), metavar="ARCH")
    add("-j", "--workers", type=int, default=os.cpu_count(), help="processes that read and augment")
    add("--epochs", type=int, default=100)
    add("-b", "--batch-size", type=int, default=4096)
    add("--lr", "--learning-rate", type=float, default=0.6, help="for a batch of 256, scaled linearly to --batch-size")
    add("--momentum", type=float, default=0.9, help="of LARS and SGD")
    add("--wd", "--weight-decay", type=float, default=1e-6, dest="weight_decay")
    add("-p", "--print-freq", type=int, default=10)
    add("--resume", type=Path, help="checkpoint to go on from")
    add("--seed", type=int, default=0, help="of initialisation, order and augmentation")
    add("--moco-dim", type=int, default=256)
    add("--moco-mlp-dim", type=int, default=4096)
    add("--moco-m", type=float, default=0.99)
    add("--moco-m-cos", action="store_true", help="raise the MoCo momentum to 1 over the run")
    add("--moco-t", type=float, help="temperature; by default 0.2 for a ViT and 1.0 for a ResNet")
    add("--stop-grad-conv1", action="store_true", help="leave a ViT's patch projection as initialised")
    add("--optimizer", default="lars", choices=OPTIMIZERS)
    add("--warmup-epochs", type=int, default=10)
    add("--crop-min", type=float, default=0.08, help="smallest share of a picture that a crop takes")
    add("--image-size", type=int, help="of the views, in pixels; by default the architecture's own, mostly 224")
    add("--on-bad-image", default="refuse", choices=("refuse", "skip"))
    add("--output", type=Path, default=Path(), metavar="DIR", help="where the checkpoints go")
    add(
        "--device",
        choices=("cpu", "gpu"),
        default="gpu" if paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0 else "cpu",
    )
    return parser


# What a run may change when it resumes: the rest decides its bits.
FREE_ON_RESUME = frozenset({"data", "workers", "print_freq", "resume", "output", "device"})


def run(args: argparse.Namespace) -> None:
    """Train as the options say, with a checkpoint after every epoch.

    Raises:
        ValueError, OSError: an option, the data or the checkpoint is wrong; the message is one line.
        FloatingPointError: the loss is not finite.
    """
    check_options(args)
    settings = {name: value for name, value in vars(args).items() if name not in FREE_ON_RESUME}
    paddle.set_device(args.device)
    paddle.seed(args.seed)
    encoder_options = {"image_size": args.image_size} if args.image_size and args.arch.startswith("vit") else {}
    model = build_moco(
        args.arch, args.moco_dim, args.moco_mlp_dim, args.moco_t, args.stop_grad_conv1, **encoder_options
    )
    loader = build_pretraining_loader(
        args.data,
        args.batch_size,
        args.image_size or model.base_encoder.image_size,
        args.seed,
        args.workers,
        crop_min=args.crop_min,
        on_bad_image=args.on_bad_image,
    )
    args = argparse.Namespace(**{**vars(args), "lr": args.lr * args.batch_size / 256})
    optimizer = build_optimizer(args.optimizer, model.parameters(), args.lr, args.weight_decay, args.momentum)
    start = load_checkpoint(args.resume, model, optimizer, settings) if args.resume else (0, 0)
    args.output.mkdir(parents=True, exist_ok=True)

    def save(epoch: int) -> None:
        save_checkpoint(args.output / f"checkpoint_{epoch:04d}{SUFFIX}", model, optimizer, epoch, 0, settings)

    log = LogWriter(len(loader), args.epochs, args.batch_size, args.print_freq)
    train(model, loader, optimizer, args, start, on_step=log, on_epoch=save)
    for path in loader.bad_images:
        print(f"left out, cannot be read: {path}", file=sys.stderr)


def check_options(args: argparse.Namespace) -> None:
    """Refuse what the parser alone lets through.

    Raises:
        ValueError: an option has no sense, or several processes were started.
    """
    if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1:
        raise ValueError("several processes were started, this program is for one; start it without a launcher")
    for name in ("epochs", "batch_size", "print_freq", "moco_dim", "moco_mlp_dim", "image_size"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')}: must be 1 or more, got {getattr(args, name)}")
    if not 0 <= args.warmup_epochs < args.epochs:
        raise ValueError(f"--warmup-epochs: must be from 0 to below --epochs {args.epochs}, got {args.warmup_epochs}")


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code: 0 done, 1 the loss was not finite, 2 wrong use, 130 interrupted."""
    args = build_parser().parse_args(argv)
    try:
        run(args)
    except FloatingPointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: --resume goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
