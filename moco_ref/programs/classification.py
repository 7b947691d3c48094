"""What `lincls` and `finetune` share: training or evaluating a classifier as the options say."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from moco_common.data.datasets import open_pictures
from moco_common.data.folders import Pictures
from moco_common.data.loaders import EvaluationLoader
from moco_common.distributed import require_equal
from moco_common.files import make_output_folder
from moco_common.programs import classification
from moco_common.programs.options import encoder_options, list_bad_images, print_options
from moco_common.training.interruption import StopRequest
from moco_common.training.reporting import Reporter, StepRecord
from moco_ref.data import build_evaluation_loader, build_training_loader
from moco_ref.devices import on_device, seed_everything
from moco_ref.distributed import (
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
from moco_ref.files.checkpoint import SUFFIX, load_checkpoint, save_checkpoint
from moco_ref.files.weights import load_classifier, load_encoder
from moco_ref.models.moco import default_image_size
from moco_ref.models.normalization import synchronise_batch_norm
from moco_ref.training.classification import (
    build_classifier,
    check_encoder_unmoved,
    encoder_state,
    freeze_encoder,
    train_classifier,
    validate,
)
from moco_ref.training.mixing import build_mixing
from moco_ref.training.model_average import ModelAverage
from moco_ref.training.optimizer import build_optimizer


def run(args: argparse.Namespace, frozen: bool) -> None:
    """Train or evaluate a classifier as the options say.

    After every epoch `checkpoint` is written, and `model_best` where the epoch's top-1 is the best so far; a signal
    makes it write `interrupted`. Where a launcher started several processes they train together, and rank 0 writes.

    Raises:
        ValueError, OSError: an option, the data or a file is wrong; the message is one line.
        FloatingPointError: the loss is not finite.
        StoppedError: a signal came; the run can be resumed from the step that it had reached.
        LostRankError: another rank is gone.
    """
    classification.check_options(args)
    with process_group(args.device) as device, watch(args.rank_timeout):
        _run_on(device, args, frozen)


def _run_on(device: str, args: argparse.Namespace, frozen: bool) -> None:
    """Train or evaluate on this rank's device, with the other ranks where there are some."""
    settings = classification.settings_of(args, frozen)
    require_equal(gather_objects({"version": torch.__version__, "Python": sys.version.split()[0], **settings}))
    seed_everything(args.seed)
    pictures = open_pictures(args.data, "train", args.dataset)
    validation = classification.build_validation_loader(
        build_evaluation_loader, args, pictures.classes, args.image_size or default_image_size(args.arch), own_place()
    )
    options = encoder_options(args) if frozen else {**encoder_options(args), "drop_path": args.drop_path}
    model = build_classifier(args.arch, len(pictures.classes), **options)
    try:
        if args.evaluate:
            load_classifier(model, args.resume, args.use_ema)
            accuracy = validate(on_device(model, device), validation)
            if rank() == 0:
                print(classification.describe(accuracy))
            return
        if args.pretrained and not args.resume:
            load_encoder(model, args.pretrained, args.use_ema)
        model = on_device(model, device)
        if world_size() > 1:
            model = synchronise_batch_norm(model)
        train_and_validate(args, model, pictures, validation, frozen)
    finally:
        list_bad_images(validation.bad_images)


def train_and_validate(
    args: argparse.Namespace, model: nn.Module, pictures: Pictures, validation: EvaluationLoader, frozen: bool
) -> None:
    """Train to the last epoch, with validation and checkpoints after each."""
    settings = classification.settings_of(args, frozen)
    image_size = args.image_size or model.image_size
    loader = classification.build_loader(build_training_loader, args, pictures, image_size, frozen, own_place())
    mixing = None if frozen else build_mixing(args, len(pictures.classes))
    args = argparse.Namespace(**{**vars(args), "lr": args.lr * args.batch_size / 256})
    if frozen:
        freeze_encoder(model)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decays_all = frozen or not args.filter_bias_and_bn
    optimizer = build_optimizer(args.optimizer, parameters, args.lr, args.weight_decay, args.momentum, decays_all)
    average = None if frozen or not args.model_ema else ModelAverage(model, args.model_ema_decay)
    values: dict[str, Any] = {"arch": args.arch, "classes": pictures.classes, "best_top1": -1.0}
    start = load_checkpoint(args.resume, model, optimizer, settings, values, average) if args.resume else (0, 0)
    before = encoder_state(model) if frozen else {}
    on_rank_0(lambda: make_output_folder(args.output))

    def save(name: str, epoch: int, iteration: int) -> Path:
        path = args.output / f"{name}{SUFFIX}"
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
        stop.share(gather_values)
        stop.raise_after(lambda: save("interrupted", record.epoch, record.iteration + 1))

    def on_epoch(epoch: int) -> None:
        if frozen:
            check_encoder_unmoved(model, before)
        accuracy = validate(model, validation)
        is_best = accuracy.top1 > values["best_top1"]
        values["best_top1"] = max(accuracy.top1, values["best_top1"])
        if rank() == 0:
            classification.report(accuracy, values["best_top1"], epoch, reporter, len(loader))
        save("checkpoint", epoch, 0)
        if is_best:
            save("model_best", epoch, 0)

    clip_grad = None if frozen else args.clip_grad
    try:
        with stop, reporter:
            parallel = data_parallel(model)
            train_classifier(parallel, loader, optimizer, args, start, on_step, on_epoch, frozen, mixing, clip_grad)
    finally:
        list_bad_images(loader.bad_images)
