"""Training a linear classifier on a frozen encoder, or classifier and encoder: options, their checks, and loaders."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moco_common.data.datasets import add_data_options, open_pictures
from moco_common.data.folders import Pictures
from moco_common.data.loaders import EvaluationLoader, PretrainingLoader
from moco_common.distributed import Place
from moco_common.images.training_augmentation import REPEATS, add_augmentation_options, build_augmentation
from moco_common.programs.options import add_common_options, check_positive, check_ranges
from moco_common.programs.recipes import LINEAR
from moco_common.training.mixing import add_mixing_options
from moco_common.training.reporting import Accuracy, Reporter

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


def build_linear_parser(package: str, architectures: Iterable[str], device: str) -> argparse.ArgumentParser:
    """Return the options of `lincls`; defaults are the official ones, except for --workers, --seed and --device."""
    parser = argparse.ArgumentParser(prog=f"python -m {package} lincls", description="linear classification")
    parser.add_argument("--recipe", choices=list(LINEAR), help="a published recipe; options given as well override it")
    _add_options(parser, architectures, device, batch_size=1024, epochs=90, lr=0.1, weight_decay=0.0)
    parser.set_defaults(optimizer="sgd", warmup_epochs=0)
    return parser


def build_fine_tuning_parser(package: str, architectures: Iterable[str], device: str) -> argparse.ArgumentParser:
    """Return the options of `finetune`."""
    parser = argparse.ArgumentParser(prog=f"python -m {package} finetune", description="transfer by fine-tuning")
    _add_options(parser, architectures, device, batch_size=512, epochs=100, lr=0.01, weight_decay=1e-4)
    parser.add_argument("--optimizer", default="sgd", choices=("sgd", "adamw"))
    parser.add_argument("--warmup-epochs", type=int, default=5)
    parser.add_argument(
        "--filter-bias-and-bn", action="store_true", help="no decay of biases, norms and class token, as in timm"
    )
    parser.add_argument("--drop-path", type=float, default=0.0, metavar="RATE", help="rate at the last residual branch")
    parser.add_argument("--clip-grad", type=float, metavar="NORM", help="scale larger gradients down to it")
    parser.add_argument("--model-ema", action="store_true", help="keep an exponential moving average of the weights")
    parser.add_argument("--model-ema-decay", type=float, default=0.9998, help="the value that its decay rises to")
    add_augmentation_options(parser)
    add_mixing_options(parser)
    return parser


def _add_options(
    parser: argparse.ArgumentParser,
    architectures: Iterable[str],
    device: str,
    batch_size: int,
    epochs: int,
    lr: float,
    weight_decay: float,
) -> None:
    add = parser.add_argument
    add_data_options(parser)
    add_common_options(parser, architectures, device, batch_size)
    add("--epochs", type=int, default=epochs)
    add("--lr", "--learning-rate", type=float, default=lr, help="for a batch of 256, scaled linearly to --batch-size")
    add("--momentum", type=float, default=0.9, help="of SGD")
    add("--wd", "--weight-decay", type=float, default=weight_decay, dest="weight_decay")
    add("-p", "--print-freq", type=int, default=10)
    add("--pretrained", type=Path, metavar="FILE", help="checkpoint of pre-training, by this or the official program")
    add("--use-ema", action="store_true", help="use the average that --model-ema kept in it")
    add("--resume", type=Path, metavar="FILE", help="checkpoint of this program to go on from, or to evaluate")
    add("-e", "--evaluate", action="store_true", help="evaluate the classifier of --resume and end")
    add("--seed", type=int, default=0, help="of initialisation, order and augmentation")
    add(
        "--rank-timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="until a rank for which the others wait is considered lost, though it computes",
    )
    add("--output", type=Path, default=Path(), metavar="DIR", help="folder for the checkpoints")
    add("--tensorboard", type=Path, metavar="DIR", help="folder for TensorBoard scalars")


def settings_of(args: argparse.Namespace, frozen: bool) -> dict[str, Any]:
    """Return the program and the options that decide a run's bits."""
    options = {name: value for name, value in vars(args).items() if name not in FREE_ON_RESUME}
    return {"program": "lincls" if frozen else "finetune", **options}


def check_options(args: argparse.Namespace) -> None:
    """Refuse what the parser cannot check.

    Raises:
        ValueError: an option makes no sense.
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


def build_loader(
    build_training_loader: Callable[..., PretrainingLoader],
    args: argparse.Namespace,
    pictures: Pictures,
    image_size: int,
    frozen: bool,
    place: Place,
) -> PretrainingLoader:
    """The loader of this rank's training pictures; fine-tuning alone augments them further and repeats them.

    Raises:
        ValueError: an option is out of its range.
    """
    further: dict[str, Any] = {}
    if not frozen:
        further = {"augmentation": build_augmentation(args), "repeats": args.repeats if args.repeated_aug else 1}
    return build_training_loader(
        pictures,
        args.batch_size,
        image_size,
        args.seed,
        args.workers // place.ranks_of_node,
        place.rank,
        place.world_size,
        args.on_bad_image,
        **further,
    )


def build_validation_loader(
    build_evaluation_loader: Callable[..., EvaluationLoader],
    args: argparse.Namespace,
    classes: list[str],
    image_size: int,
    place: Place,
) -> EvaluationLoader:
    """The loader of the validation pictures.

    Raises:
        ValueError: their classes differ from the training pictures', or they are fewer than the ranks.
    """
    pictures = open_pictures(args.data, "val", args.dataset)
    if len(pictures) < place.world_size:
        raise ValueError(f"{pictures.root}: {len(pictures)} pictures are too few for {place.world_size} processes")
    batch_size, workers = -(-args.batch_size // place.world_size), args.workers // place.ranks_of_node
    loader = build_evaluation_loader(
        pictures,
        batch_size,
        image_size,
        workers,
        place.rank,
        place.world_size,
        on_bad_image=args.on_bad_image,
    )
    if pictures.classes != classes:
        raise ValueError(
            f"{pictures.root}: has other sub-folders than the training pictures; give both the same classes"
        )
    return loader


def report(accuracy: Accuracy, best_top1: float, epoch: int, reporter: Reporter, iterations: int) -> None:
    """Print and write the accuracy after the `epoch`-th epoch, of so many iterations."""
    print(f"[epoch {epoch - 1}] {describe(accuracy)}, best top-1: {best_top1:.3f} %", flush=True)
    scalars = {"val/top1": accuracy.top1, "val/top5": accuracy.top5, "val/loss": accuracy.loss}
    reporter.scalars(epoch * iterations, scalars)


def describe(accuracy: Accuracy) -> str:
    """Return an accuracy in the log's format."""
    return f"top-1: {accuracy.top1:.3f} %, top-5: {accuracy.top5:.3f} %, loss: {accuracy.loss:.5f}"
