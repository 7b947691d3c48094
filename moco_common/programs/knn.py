"""kNN evaluation of an encoder: the program's options and loaders."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from moco_common.data.datasets import add_data_options, open_pictures
from moco_common.data.loaders import EvaluationLoader
from moco_common.programs.options import add_common_options, check_positive, check_ranges


def build_parser(package: str, architectures: Iterable[str], device: str) -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {package} knn", description="kNN accuracy of an encoder")
    add = parser.add_argument
    add_data_options(parser)
    add_common_options(parser, architectures, device, batch_size=256)
    add("--pretrained", type=Path, metavar="FILE", help="checkpoint with the encoder; without it, an untrained encoder")
    add("--use-ema", action="store_true", help="use the average that --model-ema kept in it")
    add("-k", "--neighbours", type=int, default=20, help="number of neighbours that vote")
    add("--temperature", type=float, default=0.07, help="of their votes")
    add("--seed", type=int, default=0, help="of an untrained encoder")
    return parser


def check_options(args: argparse.Namespace, is_launched: bool) -> None:
    """Refuse what the parser cannot check.

    Raises:
        ValueError: an option makes no sense, or a launcher started several processes.
    """
    if is_launched:
        raise ValueError("several processes were started, this program is for one; start it without a launcher")
    check_positive(args, "batch_size", "image_size", "neighbours")
    check_ranges(args)


def build_loaders(
    build_evaluation_loader: Callable[..., EvaluationLoader], args: argparse.Namespace, image_size: int
) -> tuple[EvaluationLoader, EvaluationLoader]:
    """Return the loaders of the pictures in train/ and of those in val/.

    Raises:
        ValueError: their classes differ.
    """
    train, val = (
        build_evaluation_loader(
            open_pictures(args.data, split, args.dataset),
            args.batch_size,
            image_size,
            args.workers,
            on_bad_image=args.on_bad_image,
        )
        for split in ("train", "val")
    )
    if train.dataset.folder.classes != val.dataset.folder.classes:
        raise ValueError(f"{args.data}: train/ and val/ have other sub-folders; give both the same classes")
    return train, val
