"""Pre-training: the loop, and the program `python -m moco_ref train DATA`.

Options have the official release's names and meanings where they still make sense. Order of the samples and draws of
the augmentation depend on --seed and the sample's address alone, so that a run that is stopped and resumed on one CPU
process, at whatever step, ends in the same bits as one that was not.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .builder import MoCo, build_moco
from .checkpoint import SUFFIX, load_checkpoint, make_output_folder, save_checkpoint
from .data import PretrainingLoader, build_pretraining_loader, split_folder
from .distributed import (
    data_parallel,
    gather_objects,
    gather_values,
    on_rank_0,
    process_group,
    rank,
    ranks_of_node,
    require_equal,
    unwrapped,
    world_size,
)
from .interruption import StopRequest
from .model_average import ModelAverage
from .normalization import synchronise_batch_norm
from .optimizer import OPTIMIZERS, build_optimizer
from .precision import MODES, Precision, first_layer_not_finite
from .program import (
    add_common_options,
    check_positive,
    check_ranges,
    encoder_options,
    execute,
    list_bad_images,
    on_device,
    print_options,
    seed_everything,
)
from .recipes import PRETRAINING, parse_with_recipe
from .reporting import LogWriter, Reporter, StepRecord
from .schedule import adjust_learning_rate, adjust_moco_momentum
from .watch import Watch

__all__ = ["LogWriter", "StepRecord", "train", "train_step"]


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
        precision: how the model computes, float32 (or the dtype that it has) where it is None.

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
        FloatingPointError: the loss is not finite, on whichever rank, or a gradient where no loss scale can mend it.
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
    """Return the error that names the first layer whose output is not finite, and its rank, where there is one.

    Batch norm and keys spread what is not finite to all ranks: it comes from the one whose layer is first in the model.
    """
    # A MoCo momentum of 1 leaves the momentum encoder where it is.
    layers = gather_objects(first_layer_not_finite(model, view1, view2, 1.0))
    order = [name for name, _ in model.named_modules()]
    found = [(order.index(layer), of) for of, layer in enumerate(layers) if layer is not None]
    where = f", first in {order[min(found)[0]]}" if found else ""
    whose = f" of rank {min(found)[1]}" if found and len(layers) > 1 else ""
    place = f"at epoch {epoch:.4f}{where}{whose}"
    return FloatingPointError(f"{what} {place}; a lower --lr may help, or another --precision")


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options; defaults are the official ones, but for --workers and --seed."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} train", description="MoCo v3 pre-training")
    add = parser.add_argument
    add(
        "data",
        type=Path,
        metavar="DATA",
        help="folder with one sub-folder of pictures a class, or with train/ and val/",
    )
    add("--recipe", choices=list(PRETRAINING), help="a published recipe; options given beside it win")
    add_common_options(parser, batch_size=4096)
    add("--epochs", type=int, default=100)
    add("--start-epoch", type=int, default=0, help="begin with this epoch of the schedule, without a checkpoint")
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
    add("--precision", default="fp32", choices=MODES, help="how the model computes; emulated where there is no GPU")
    add("--model-ema", action="store_true", help="keep an exponential moving average of the whole model")
    add("--model-ema-decay", type=float, default=0.9998, help="what its decay rises to")
    add(
        "--rank-timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="until a rank that stands still is given up",
    )
    add("--output", type=Path, default=Path(), metavar="DIR", help="where the checkpoints go")
    add("--keep", type=int, metavar="N", help="keep the last N epochs' checkpoints only; by default all")
    add("--tensorboard", type=Path, metavar="DIR", help="write scalars for TensorBoard there")
    return parser


# What a run may change when it resumes: the rest decides its bits.
FREE_ON_RESUME = frozenset(
    {
        "data",
        "recipe",
        "workers",
        "on_bad_image",
        "print_freq",
        "start_epoch",
        "resume",
        "output",
        "keep",
        "tensorboard",
        "device",
        "rank_timeout",
    }
)


def run(args: argparse.Namespace) -> None:
    """Train as the options say, with a checkpoint after every epoch, and one where a signal ends the run.

    Raises:
        ValueError, OSError: an option, the data or the checkpoint is wrong; the message is one line.
        FloatingPointError: the loss is not finite.
        StoppedError: a signal came; the run can be resumed at the step that it had come to.
        LostRankError: another rank is gone.
    """
    check_options(args)
    with process_group(args.device) as device, Watch(args.rank_timeout):
        _run_on(device, args)


def _run_on(device: str, args: argparse.Namespace) -> None:
    """Train on this rank's device, with the other ranks where there are some; rank 0 alone writes."""
    settings = {"program": "train", **{name: value for name, value in vars(args).items() if name not in FREE_ON_RESUME}}
    require_equal({"version": torch.__version__, "Python": sys.version.split()[0], **settings})
    seed_everything(args.seed)
    model = build_moco(
        args.arch, args.moco_dim, args.moco_mlp_dim, args.moco_t, args.stop_grad_conv1, **encoder_options(args)
    )
    model = on_device(model, device)
    if world_size() > 1:
        model = synchronise_batch_norm(model)
    loader = build_loader(args, args.image_size or model.base_encoder.image_size)
    args = argparse.Namespace(**{**vars(args), "lr": args.lr * args.batch_size / 256})
    optimizer = build_optimizer(args.optimizer, model.parameters(), args.lr, args.weight_decay, args.momentum)
    precision = Precision(args.precision, model, device.partition(":")[0])
    if precision.is_emulated and rank() == 0:
        print(f"--precision {args.precision}: emulated, float32 values rounded to {precision.half_name}", flush=True)
    average = ModelAverage(model, args.model_ema_decay) if args.model_ema else None
    start = args.start_epoch, 0
    if args.resume:
        values: dict[str, Any] = {}
        start = load_checkpoint(args.resume, model, optimizer, settings, values, average)
        precision.load(values.get("loss_scaler", {}))
    on_rank_0(lambda: make_output_folder(args.output))

    def save(name: str, epoch: int, iteration: int) -> Path:
        path = args.output / f"{name}{SUFFIX}"
        values = {"loss_scaler": precision.state()}
        on_rank_0(lambda: save_checkpoint(path, model, optimizer, epoch, iteration, settings, values, average))
        return path

    reporter: Any = contextlib.nullcontext()
    if rank() == 0:
        print_options(settings)
        reporter = Reporter(len(loader), args.epochs, args.batch_size, args.print_freq, start, args.tensorboard)
    stop = StopRequest()

    def on_step(record: StepRecord) -> None:
        if average is not None:
            average(record)
        if rank() == 0:
            reporter(record)
        if precision.overflow is not None and rank() == 0:
            place = f"[epoch {record.epoch}, iter {record.iteration}]"
            message = f"{place} no step: the gradient of {precision.overflow} is not finite"
            print(f"{message}; loss scale now {precision.scaler.scale:g}", file=sys.stderr)
        stop.share(gather_values)
        stop.raise_after(lambda: save("interrupted", record.epoch, record.iteration + 1))

    def on_epoch(epoch: int) -> None:
        save(f"checkpoint_{epoch:04d}", epoch, 0)
        if args.keep is not None:
            on_rank_0(lambda: remove_older_checkpoints(args.output, epoch, args.keep))

    try:
        with stop, reporter:
            train(data_parallel(model), loader, optimizer, args, start, on_step, on_epoch, precision)
    finally:
        list_bad_images(loader.bad_images)


def build_loader(args: argparse.Namespace, image_size: int) -> PretrainingLoader:
    """Build the loader of two views that the options ask for, of this rank's share of the batches."""
    return build_pretraining_loader(
        split_folder(args.data, "train"),
        args.batch_size,
        image_size,
        args.seed,
        args.workers // ranks_of_node(),
        crop_min=args.crop_min,
        on_bad_image=args.on_bad_image,
        rank=rank(),
        world_size=world_size(),
    )


def remove_older_checkpoints(folder: Path, epoch: int, keep: int) -> None:
    """Remove the checkpoints of all epochs but the last `keep` up to `epoch`; later ones are another run's."""
    for path in folder.glob(f"checkpoint_[0-9][0-9][0-9][0-9]{SUFFIX}"):
        if int(path.name.removeprefix("checkpoint_").removesuffix(SUFFIX)) <= epoch - keep:
            path.unlink()


def check_options(args: argparse.Namespace) -> None:
    """Refuse what the parser alone lets through.

    Raises:
        ValueError: an option has no sense.
    """
    check_positive(args, "epochs", "batch_size", "print_freq", "moco_dim", "moco_mlp_dim", "image_size", "keep")
    check_ranges(args)
    if not 0 <= args.warmup_epochs < args.epochs:
        raise ValueError(f"--warmup-epochs: must be from 0 to below --epochs {args.epochs}, got {args.warmup_epochs}")
    if not 0 <= args.start_epoch < args.epochs:
        raise ValueError(f"--start-epoch: must be from 0 to below --epochs {args.epochs}, got {args.start_epoch}")
    if args.start_epoch and args.resume:
        raise ValueError("--start-epoch: a checkpoint has its own epoch; leave one of --start-epoch and --resume out")


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, parse_with_recipe(build_parser(), PRETRAINING, argv))


if __name__ == "__main__":
    sys.exit(main())
