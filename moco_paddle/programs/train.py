"""Pre-training: the program `python -m moco_paddle train DATA`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

import paddle

from moco_common.distributed import require_equal
from moco_common.files import make_output_folder
from moco_common.programs import train
from moco_common.programs.options import encoder_options, execute, list_bad_images, print_options
from moco_common.programs.recipes import PRETRAINING, parse_with_recipe
from moco_common.training.interruption import StopRequest
from moco_common.training.reporting import Reporter, StepRecord
from moco_paddle.data import build_pretraining_loader
from moco_paddle.devices import default_device, on_device, seed_everything
from moco_paddle.distributed import (
    data_parallel,
    gather_objects,
    gather_values,
    on_rank_0,
    own_place,
    process_group,
    rank,
    watch,
    world_size,
)
from moco_paddle.files.checkpoint import SUFFIX, load_checkpoint, save_checkpoint
from moco_paddle.models.moco import ARCHITECTURES, build_moco
from moco_paddle.models.normalization import synchronise_batch_norm
from moco_paddle.training import pretraining
from moco_paddle.training.model_average import ModelAverage
from moco_paddle.training.optimizer import OPTIMIZERS, build_optimizer
from moco_paddle.training.precision import Precision


def run(args: argparse.Namespace) -> None:
    """Train as the options say, with a checkpoint after every epoch, and one where a signal ends the run.

    Raises:
        ValueError, OSError: an option, the data or the checkpoint is wrong; the message is one line.
        FloatingPointError: the loss is not finite.
        StoppedError: a signal came; the run can be resumed from the step that it had reached.
        LostRankError: another rank is gone.
    """
    train.check_options(args)
    with process_group(args.device) as device, watch(args.rank_timeout):
        _run_on(device, args)


def _run_on(device: str, args: argparse.Namespace) -> None:
    """Train on this rank's device, with the other ranks if there are any; only rank 0 writes files."""
    settings = train.settings_of(args)
    require_equal(gather_objects({"version": paddle.__version__, "Python": sys.version.split()[0], **settings}))
    seed_everything(args.seed)
    model = build_moco(
        args.arch, args.moco_dim, args.moco_mlp_dim, args.moco_t, args.stop_grad_conv1, **encoder_options(args)
    )
    model = on_device(model, device)
    if world_size() > 1:
        model = synchronise_batch_norm(model)
    image_size = args.image_size or model.base_encoder.image_size
    loader = train.build_loader(build_pretraining_loader, args, image_size, own_place())
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
            on_rank_0(lambda: train.remove_older_checkpoints(args.output, epoch, args.keep, SUFFIX))

    try:
        with stop, reporter:
            pretraining.train(data_parallel(model), loader, optimizer, args, start, on_step, on_epoch, precision)
    finally:
        list_bad_images(loader.bad_images)


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    parser = train.build_parser("moco_paddle", ARCHITECTURES, default_device(), OPTIMIZERS)
    return execute(run, parse_with_recipe(parser, PRETRAINING, argv))
