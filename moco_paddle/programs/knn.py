"""kNN evaluation of an encoder, without training: the program `python -m moco_paddle knn DATA --pretrained FILE`."""

from __future__ import annotations

import argparse

from moco_common.programs import knn
from moco_common.programs.options import encoder_options, execute, list_bad_images
from moco_paddle.data import build_evaluation_loader
from moco_paddle.devices import default_device, on_device, seed_everything, set_device
from moco_paddle.distributed import is_launched
from moco_paddle.files.weights import load_encoder
from moco_paddle.models.moco import ARCHITECTURES, build_encoder
from moco_paddle.training.evaluation import extract_features, knn_accuracy


def run(args: argparse.Namespace) -> None:
    """Print the top-1 accuracy of the pictures in val/ by their neighbours in train/.

    Raises:
        ValueError, OSError: an option, the data or the file is wrong; the message is one line.
    """
    knn.check_options(args, is_launched())
    device = set_device(args.device)
    seed_everything(args.seed)
    model = build_encoder(args.arch, num_classes=1, **encoder_options(args))
    if args.pretrained:
        load_encoder(model, args.pretrained, args.use_ema)
    model = on_device(model, device)
    loaders = knn.build_loaders(build_evaluation_loader, args, args.image_size or model.image_size)
    try:
        train, val = (extract_features(model, loader) for loader in loaders)
    finally:
        list_bad_images(loaders[0].bad_images + loaders[1].bad_images)
    accuracy = knn_accuracy(*train, *val, k=args.neighbours, temperature=args.temperature)
    print(f"kNN top-1: {accuracy:.3f} % of {val[1].shape[0]} pictures, {args.neighbours} neighbours")


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, knn.build_parser("moco_paddle", ARCHITECTURES, default_device()).parse_args(argv))
