"""Pre-training: the program's options, their checks, and the loader.

Options have the official release's names and meanings where they still make sense. Order of the samples and draws of
the augmentation depend on --seed and the sample's address alone, so that a run on one CPU process gives the same bits
whether it is stopped and resumed, at any step, or not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moco_common.data.folders import split_folder
from moco_common.data.loaders import PretrainingLoader
from moco_common.distributed import Place
from moco_common.programs.options import add_common_options, check_positive, check_ranges
from moco_common.programs.recipes import PRETRAINING
from moco_common.training.precision import MODES

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


def build_parser(
    package: str, architectures: Iterable[str], device: str, optimizers: Iterable[str]
) -> argparse.ArgumentParser:
    """Return the program's options; defaults are the official ones, except for --workers, --seed and --device."""
    parser = argparse.ArgumentParser(prog=f"python -m {package} train", description="MoCo v3 pre-training")
    add = parser.add_argument
    add(
        "data",
        type=Path,
        metavar="DATA",
        help="folder with one sub-folder of pictures a class, or with train/ and val/",
    )
    add("--recipe", choices=list(PRETRAINING), help="a published recipe; options given as well override it")
    add_common_options(parser, architectures, device, batch_size=4096)
    add("--epochs", type=int, default=100)
    add("--start-epoch", type=int, default=0, help="start at this epoch of the schedule, without a checkpoint")
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
    add("--optimizer", default="lars", choices=optimizers)
    add("--warmup-epochs", type=int, default=10)
    add("--crop-min", type=float, default=0.08, help="smallest share of a picture's area that a crop takes")
    add("--precision", default="fp32", choices=MODES, help="how the model computes; emulated where there is no GPU")
    add("--model-ema", action="store_true", help="keep an exponential moving average of the whole model")
    add("--model-ema-decay", type=float, default=0.9998, help="the value that its decay rises to")
    add(
        "--rank-timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="until a rank for which the others wait is considered lost, though it computes",
    )
    add("--output", type=Path, default=Path(), metavar="DIR", help="folder for the checkpoints")
    add("--keep", type=int, metavar="N", help="keep the last N epochs' checkpoints only; by default all")
    add("--tensorboard", type=Path, metavar="DIR", help="folder for TensorBoard scalars")
    return parser


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the program and the options that decide a run's bits."""
    return {"program": "train", **{name: value for name, value in vars(args).items() if name not in FREE_ON_RESUME}}


def check_options(args: argparse.Namespace) -> None:
    """Refuse what the parser cannot check.

    Raises:
        ValueError: an option makes no sense.
    """
    check_positive(args, "epochs", "batch_size", "print_freq", "moco_dim", "moco_mlp_dim", "image_size", "keep")
    check_ranges(args)
    if not 0 <= args.warmup_epochs < args.epochs:
        raise ValueError(f"--warmup-epochs: must be from 0 to below --epochs {args.epochs}, got {args.warmup_epochs}")
    if not 0 <= args.start_epoch < args.epochs:
        raise ValueError(f"--start-epoch: must be from 0 to below --epochs {args.epochs}, got {args.start_epoch}")
    if args.start_epoch and args.resume:
        raise ValueError("--start-epoch: a checkpoint has its own epoch; give either --start-epoch or --resume")


def build_loader(
    build_pretraining_loader: Callable[..., PretrainingLoader], args: argparse.Namespace, image_size: int, place: Place
) -> PretrainingLoader:
    """Build the loader of two views for this rank's share of the batches.

    `build_pretraining_loader` is the twin's own, as in the other programs.
    """
    return build_pretraining_loader(
        split_folder(args.data, "train"),
        args.batch_size,
        image_size,
        args.seed,
        args.workers // place.ranks_of_node,
        crop_min=args.crop_min,
        on_bad_image=args.on_bad_image,
        rank=place.rank,
        world_size=place.world_size,
    )


def remove_older_checkpoints(folder: Path, epoch: int, keep: int, suffix: str) -> None:
    """Remove the checkpoints of all epochs but the last `keep` up to `epoch`; later ones are another run's."""
    for path in folder.glob(f"checkpoint_[0-9][0-9][0-9][0-9]{suffix}"):
        if int(path.name.removeprefix("checkpoint_").removesuffix(suffix)) <= epoch - keep:
            path.unlink()
