"""What the programs that train a classifier share: options, checkpoints, and the run itself."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .builder import ARCHITECTURES
from .checkpoint import SUFFIX, load_checkpoint, make_output_folder, save_checkpoint
from .classifier import (
    Accuracy,
    build_classifier,
    check_encoder_unmoved,
    encoder_state,
    freeze_encoder,
    train_classifier,
    validate,
)
from .data import EvaluationLoader, Pictures, PretrainingLoader, build_evaluation_loader
from .datasets import add_data_options, open_pictures
from .distributed import (
    data_parallel,
    gather_values,
    on_rank_0,
    process_group,
    rank,
    ranks_of_node,
    require_equal,
    world_size,
)
from .interruption import StopRequest
from .labelled_data import REPEATS, build_augmentation, build_training_loader
from .mixing import build_mixing
from .model_average import ModelAverage
from .normalization import synchronise_batch_norm
from .optimizer import build_optimizer
from .program import (
    add_common_options,
    check_positive,
    check_ranges,
    encoder_options,
    list_bad_images,
    on_device,
    print_options,
    seed_everything,
)
from .reporting import Reporter, StepRecord
from .watch import Watch
from .weights import load_classifier, load_encoder

# What a run may change when it resumes: the rest decides its bits.
FREE_ON_RESUME = frozenset(
    {
        "data",
        "dataset",
        "recipe",
        "workers",
        "on_bad_image",
        "print_freq",
        "resume",
        "evaluate",
        "pretrained",
        "output",
        "tensorboard",
        "device",
        "rank_timeout",
    }
)


def add_options(parser: argparse.ArgumentParser, batch_size: int, epochs: int, lr: float, weight_decay: float) -> None:
    """Add the options of a program that trains a classifier, with that program's defaults."""
    add = parser.add_argument
    add_data_options(parser)
    add_common_options(parser, batch_size)
    add("--epochs", type=int, default=epochs)
    add("--lr", "--learning-rate", type=float, default=lr, help="for a batch of 256, scaled linearly to --batch-size")
    add("--momentum", type=float, default=0.9, help="of SGD")
    add("--wd", "--weight-decay", type=float, default=weight_decay, dest="weight_decay")
    add("-p", "--print-freq", type=int, default=10)
    add("--pretrained", type=Path, metavar="FILE", help="what pre-training wrote, here or with the official program")
    add("--use-ema", action="store_true", help="take the average that --model-ema kept out of it")
    add("--resume", type=Path, metavar="FILE", help="checkpoint of this program to go on from, or to evaluate")
    add("-e", "--evaluate", action="store_true", help="judge the classifier of --resume and end")
    add("--seed", type=int, default=0, help="of initialisation, order and augmentation")
    add(
        "--rank-timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="until a rank that stands still is given up",
    )
    add("--output", type=Path, default=Path(), metavar="DIR", help="where the checkpoints go")
    add("--tensorboard", type=Path, metavar="DIR", help="write scalars for TensorBoard there")


def run(args: argparse.Namespace, frozen: bool) -> None:
    """Train or evaluate a classifier as the options say.

    After every epoch `checkpoint` is written, and `model_best` where the epoch's top-1 is the best so far; a signal
    makes it write `interrupted`. Where a launcher started several processes they train together, and rank 0 writes.

    Raises:
        ValueError, OSError: an option, the data or a file is wrong; the message is one line.
        FloatingPointError: the loss is not finite.
        StoppedError: a signal came; the run can be resumed at the step that it had come to.
        LostRankError: another rank is gone.
    """
    check_options(args)
    with process_group(args.device) as device, Watch(args.rank_timeout):
        _run_on(device, args, frozen)


def _run_on(device: str, args: argparse.Namespace, frozen: bool) -> None:
    """Train or evaluate on this rank's device, with the other ranks where there are some."""
    require_equal({"version": torch.__version__, "Python": sys.version.split()[0], **settings_of(args, frozen)})
    seed_everything(args.seed)
    pictures = open_pictures(args.data, "train", args.dataset)
    validation = build_validation_loader(args, pictures.classes)
    options = encoder_options(args) if frozen else {**encoder_options(args), "drop_path": args.drop_path}
    model = build_classifier(args.arch, len(pictures.classes), **options)
    try:
        if args.evaluate:
            load_classifier(model, args.resume, args.use_ema)
            accuracy = validate(on_device(model, device), validation)
            if rank() == 0:
                print(describe(accuracy))
            return
        if args.pretrained and not args.resume:
            load_encoder(model, args.pretrained, args.use_ema)
        model = on_device(model, device)
        if world_size() > 1:
            model = synchronise_batch_norm(model)
        train_and_validate(args, model, pictures, validation, frozen)
    finally:
        list_bad_images(validation.bad_images)


def settings_of(args: argparse.Namespace, frozen: bool) -> dict[str, Any]:
    """Return the program and the options that decide a run's bits."""
    options = {name: value for name, value in vars(args).items() if name not in FREE_ON_RESUME}
    return {"program": "lincls" if frozen else "finetune", **options}


def train_and_validate(
    args: argparse.Namespace, model: nn.Module, pictures: Pictures, validation: EvaluationLoader, frozen: bool
) -> None:
    """Train to the last epoch, with validation and checkpoints after each."""
    settings = settings_of(args, frozen)
    loader = build_loader(args, pictures, args.image_size or model.image_size, frozen)
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
            report(accuracy, values["best_top1"], epoch, reporter, len(loader))
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


def build_loader(args: argparse.Namespace, pictures: Pictures, image_size: int, frozen: bool) -> PretrainingLoader:
    """The loader of this rank's training pictures; fine-tuning alone augments them further and repeats them.

    Raises:
        ValueError: an option is out of its range.
    """
    further: dict[str, Any] = {}
    if not frozen:
        further = {"augmentation": build_augmentation(args), "repeats": args.repeats if args.repeated_aug else 1}
    workers = args.workers // ranks_of_node()
    return build_training_loader(
        pictures, args.batch_size, image_size, args.seed, workers, args.on_bad_image, **further
    )


def report(accuracy: Accuracy, best_top1: float, epoch: int, reporter: Reporter, iterations: int) -> None:
    """Print and write the accuracy after the `epoch`-th epoch, of so many iterations."""
    print(f"[epoch {epoch - 1}] {describe(accuracy)}, best top-1: {best_top1:.3f} %", flush=True)
    scalars = {"val/top1": accuracy.top1, "val/top5": accuracy.top5, "val/loss": accuracy.loss}
    reporter.scalars(epoch * iterations, scalars)


def build_validation_loader(args: argparse.Namespace, classes: list[str]) -> EvaluationLoader:
    """The loader of the validation pictures.

    Raises:
        ValueError: they have other classes than the training pictures, or are fewer than the ranks.
    """
    size = args.image_size or default_image_size(args.arch)
    pictures = open_pictures(args.data, "val", args.dataset)
    if len(pictures) < world_size():
        raise ValueError(f"{pictures.root}: {len(pictures)} pictures are too few for {world_size()} processes")
    batch_size, workers = -(-args.batch_size // world_size()), args.workers // ranks_of_node()
    loader = build_evaluation_loader(
        pictures, batch_size, size, workers, rank(), world_size(), on_bad_image=args.on_bad_image
    )
    if pictures.classes != classes:
        raise ValueError(
            f"{pictures.root}: has other sub-folders than the training pictures; give both the same classes"
        )
    return loader


def default_image_size(arch: str) -> int:
    """Return what the architecture is trained on, in pixels."""
    return ARCHITECTURES[arch].keywords.get("image_size", 224)


def describe(accuracy: Accuracy) -> str:
    """Return an accuracy as the log has it."""
    return f"top-1: {accuracy.top1:.3f} %, top-5: {accuracy.top5:.3f} %, loss: {accuracy.loss:.5f}"


def check_options(args: argparse.Namespace) -> None:
    """Refuse what the parser alone lets through.

    Raises:
        ValueError: an option has no sense.
    """
    check_positive(args, "epochs", "batch_size", "print_freq", "image_size")
    check_ranges(args)
    if not 0 <= args.warmup_epochs < args.epochs:
        raise ValueError(f"--warmup-epochs: must be from 0 to below --epochs {args.epochs}, got {args.warmup_epochs}")
    if getattr(args, "clip_grad", None) is not None and not args.clip_grad > 0:
        raise ValueError(f"--clip-grad: must be more than 0, got {args.clip_grad}")
    if getattr(args, "repeats", REPEATS) != REPEATS and not args.repeated_aug:
        raise ValueError(
            "--repeats: counts the copies that --repeated-aug shows; give --repeated-aug too, or leave it out"
        )
    if args.evaluate and not args.resume:
        raise ValueError("--evaluate: name the classifier's checkpoint with --resume")
