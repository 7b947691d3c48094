"""kNN evaluation of an encoder, without training: the program `python -m moco_ref knn DATA --pretrained FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .builder import build_encoder
from .data import build_evaluation_loader
from .datasets import add_data_options, open_pictures
from .evaluation import extract_features, knn_accuracy
from .program import (
    add_common_options,
    check_one_process,
    check_positive,
    check_ranges,
    encoder_options,
    execute,
    list_bad_images,
    on_device,
    seed_everything,
    set_device,
)
from .weights import load_encoder


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} knn", description="kNN accuracy of an encoder")
    add = parser.add_argument
    add_data_options(parser)
    add_common_options(parser, batch_size=256)
    add("--pretrained", type=Path, metavar="FILE", help="checkpoint with the encoder; without one it is untrained")
    add("--use-ema", action="store_true", help="take the average that --model-ema kept out of it")
    add("-k", "--neighbours", type=int, default=20, help="how many vote")
    add("--temperature", type=float, default=0.07, help="of their votes")
    add("--seed", type=int, default=0, help="of an untrained encoder")
    return parser


def run(args: argparse.Namespace) -> None:
    """Print the top-1 accuracy of the pictures in val/ by their neighbours in train/.

    Raises:
        ValueError, OSError: an option, the data or the file is wrong; the message is one line.
    """
    check_one_process()
    check_positive(args, "batch_size", "image_size", "neighbours")
    check_ranges(args)
    device = set_device(args.device)
    seed_everything(args.seed)
    model = build_encoder(args.arch, num_classes=1, **encoder_options(args))
    if args.pretrained:
        load_encoder(model, args.pretrained, args.use_ema)
    model = on_device(model, device)
    size = args.image_size or model.image_size
    loaders = [
        build_evaluation_loader(
            open_pictures(args.data, split, args.dataset),
            args.batch_size,
            size,
            args.workers,
            on_bad_image=args.on_bad_image,
        )
        for split in ("train", "val")
    ]
    classes = [loader.dataset.folder.classes for loader in loaders]
    if classes[0] != classes[1]:
        raise ValueError(f"{args.data}: train/ and val/ have other sub-folders; give both the same classes")
    try:
        train, val = (extract_features(model, loader) for loader in loaders)
    finally:
        list_bad_images(loaders[0].bad_images + loaders[1].bad_images)
    accuracy = knn_accuracy(*train, *val, k=args.neighbours, temperature=args.temperature)
    print(f"kNN top-1: {accuracy:.3f} % of {val[1].shape[0]} pictures, {args.neighbours} neighbours")


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, build_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
